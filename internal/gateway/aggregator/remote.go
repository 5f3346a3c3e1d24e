package aggregator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/requestheader"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/gateway/filter/deadline"
	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
	"github.com/keelson-dev/keelson/internal/machinery/proxy"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// remote is one version of a group that another server serves.
type remote struct {
	a       *Aggregator
	name    string // of the APIService
	version schema.GroupVersion
	spec    apiregistrationv1.APIServiceSpec
	service apiregistrationv1.ServiceReference
	port    int32

	transport *proxy.Transport
	// budget limits the requests that wait for the server, other than watches. So a server that does not respond does
	// not delay requests for other servers.
	budget *fairshare.Pool
	// calls limits the calls of this server's own controllers, and the reading of documents.
	calls *budget

	// available means that requests are forwarded.
	available atomic.Bool
	// discovered is the discovery document of the server; nil before its first response.
	discovered atomic.Pointer[discovery.Remote]
	openapi    openapiState
	// outdated means that the next check reads the documents of the server, because the APIService has changed.
	outdated atomic.Bool

	// check receives when the server has to be checked soon. Its capacity is 1.
	check chan struct{}
	// checked is when the last check began, in nanoseconds of Unix time.
	checked atomic.Int64
	stop    context.CancelFunc // nil if the loop does not run

	mu        sync.Mutex // guards condition
	condition apiregistrationv1.APIServiceCondition
}

const defaultPort = 443

// newRemote returns the remote of an APIService. mu of a is held.
func newRemote(a *Aggregator, s *apiregistrationv1.APIService) *remote {
	r := &remote{
		a: a, name: s.Name, version: schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version},
		spec: *s.Spec.DeepCopy(), service: *s.Spec.Service, port: defaultPort,
		budget: fairshare.NewPool(a.o.InFlight), calls: a.budgetOf(s.Spec.Service), check: make(chan struct{}, 1),
	}
	if s.Spec.Service.Port != nil {
		r.port = *s.Spec.Service.Port
	}
	r.transport = proxy.NewTransport(proxy.TransportOptions{
		Dial: a.o.Dial, TLS: r.tlsConfig(), Pinned: true, Observe: a.metrics.certificates.Observe,
	})
	r.observe(s)
	return r
}

// tlsConfig returns the TLS configuration for connections to the server.
func (r *remote) tlsConfig() *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: r.service.Name + "." + r.service.Namespace + ".svc",
		InsecureSkipVerify: r.spec.InsecureSkipTLSVerify, //nolint:gosec // as configured in the APIService
	}
	if len(r.spec.CABundle) > 0 {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM(r.spec.CABundle) // without a certificate in it no server is trusted
	}
	if certificate := r.a.o.Certificate; certificate != nil {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate() }
	}
	return c
}

// sameTarget reports whether an APIService still names the server of the remote, and the same way to reach it.
func (r *remote) sameTarget(s *apiregistrationv1.APIService) bool {
	old, now := r.spec, s.Spec
	old.GroupPriorityMinimum, old.VersionPriority = 0, 0
	now.GroupPriorityMinimum, now.VersionPriority = 0, 0
	return now.Service != nil && old.String() == now.String()
}

// observe stores the condition of the APIService. Another process may have written it, whose connection to the
// server may differ. So the condition decides whether requests are forwarded only until this process has checked
// the server.
func (r *remote) observe(s *apiregistrationv1.APIService) {
	condition := availableCondition(s)
	r.mu.Lock()
	r.condition = condition
	r.mu.Unlock()
	if r.checked.Load() == 0 {
		r.setAvailable(condition.Status == apiregistrationv1.ConditionTrue)
	}
}

// keep takes over the state of the remote that this one replaces.
func (r *remote) keep(old *remote) {
	r.discovered.Store(old.discovered.Load())
	r.openapi.keep(&old.openapi)
}

// end stops the loop. Requests that are in flight go on.
func (r *remote) end() {
	if r.stop != nil {
		r.stop()
	}
	r.transport.CloseIdle()
}

// checkSoon requests a check of the server without delay.
func (r *remote) checkSoon() {
	select {
	case r.check <- struct{}{}:
	default:
	}
}

// suspect requests a check of the server because a request has failed, unless a check has begun a moment ago.
func (r *remote) suspect() {
	if now := time.Now().UnixNano(); now-r.checked.Load() > int64(suspectEvery) {
		r.checkSoon()
	}
}

// target returns the URL of a path of the server, with the transport to reach it.
func (r *remote) target(ctx context.Context, path, query string) (proxy.Target, error) {
	address, err := r.a.o.Resolve(ctx, r.service.Namespace, r.service.Name, r.port)
	if err != nil {
		return proxy.Target{}, err
	}
	u := &url.URL{Scheme: "https", Host: address, Path: path, RawQuery: query}
	return proxy.Target{URL: u, Transport: r.transport, Addresses: []string{address}, Host: address}, nil
}

// ServeHTTP forwards a request to the server.
func (r *remote) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	ctx := in.Context()
	tracker := request.TrackerFrom(ctx)
	user := request.UserFrom(ctx)
	if user == nil {
		http.Error(w, "missing user", http.StatusInternalServerError)
		return
	}
	if !r.available.Load() {
		tracker.TerminateAggregated()
		r.unavailable(w, r.reason())
		return
	}
	if why := proxy.Refusal(in); why != "" {
		http.Error(w, why, http.StatusBadRequest)
		return
	}
	target, err := r.target(ctx, in.URL.Path, in.URL.RawQuery)
	if err != nil {
		r.suspect()
		tracker.TerminateAggregated()
		r.unavailable(w, "ServiceAccessError")
		return
	}
	rw := responserecorder.Wrap(w)
	longRunning := deadline.LongRunning(request.InfoFrom(ctx)) || proxy.IsUpgrade(in)
	if !longRunning {
		seat := r.budget.AccountFor(user)
		if !seat.Take(1) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, fmt.Sprintf("too many requests wait for APIService %s", r.name), http.StatusTooManyRequests)
			return
		}
		defer seat.Release()
	}
	// Give the seat back: while the other server works, this one only copies.
	rw.ReleaseSeat()
	target.Header = requestheader.Headers(user)
	target.Header.Set("X-Forwarded-Host", target.URL.Host)
	target.Header.Set("X-Forwarded-Proto", target.URL.Scheme)
	handler := proxy.Handler{
		// The paths are equal, so links stay as they are; the Rewriter sets X-Forwarded-Uri and removes CORS headers.
		Target: target, Rewrite: proxy.NewRewriter(in.URL.Path, in.URL.Path),
		LongRunning: longRunning, RefuseRedirects: r.a.o.RejectRedirects, Error: r.failed,
	}
	handler.ServeHTTP(rw, in)
	if rw.Status == http.StatusServiceUnavailable {
		r.suspect()
	}
}

// failed answers a request that could not be forwarded. The server is checked soon if it could not be reached.
func (r *remote) failed(w http.ResponseWriter, in *http.Request, err error) {
	if ended := in.Context().Err(); ended != nil {
		apiresponse.Error(w, in, ended)
		return
	}
	r.a.o.Log.Warn("a request to an extension API server failed", "apiservice", r.name, "error", err)
	r.suspect()
	request.TrackerFrom(in.Context()).TerminateAggregated()
	w.Header().Set(reasonHeader, r.name+"; the request failed")
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// reasonHeader is a header of responses to requests that failed. It names the APIService and the reason, which are not
// in the body because that is the same as kube-apiserver's.
const reasonHeader = "X-Apiservice-Failure"

// unavailable answers a request to a server that cannot be reached. The status of the APIService has the details.
func (r *remote) unavailable(w http.ResponseWriter, reason string) {
	w.Header().Set(reasonHeader, r.name+"; "+reason)
	http.Error(w, "service unavailable", http.StatusServiceUnavailable)
}

// reason returns why the server is not available, in one word.
func (r *remote) reason() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.condition.Reason == "" {
		return "it was not checked yet"
	}
	return r.condition.Reason
}

// get requests a document of the server. The headers name the user.
func (r *remote) get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	target, err := r.target(ctx, path, "")
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.URL.String(), nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	return r.transport.RoundTripTo(req, target.Addresses[0])
}

// checker returns the headers of the user for availability checks.
func checker() http.Header {
	return requestheader.Headers(&request.User{Name: "system:kube-aggregator", Groups: []string{request.GroupMasters}})
}

func documentReader() http.Header {
	return requestheader.Headers(&request.User{Name: "system:aggregator"})
}
