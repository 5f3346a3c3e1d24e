package keelson

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/internal/gateway/filter/traffic"
	"github.com/keelson-dev/keelson/internal/server/certs"
)

// Request is a request that a client has sent; see Server.Requests.
type Request struct {
	// Time is when the request arrived.
	Time time.Time
	// User is the name of the user whose permissions were checked, after impersonation. It is empty if the request
	// was not authenticated.
	User string
	// Groups are the groups of the user.
	Groups []string
	// UserAgent is the header User-Agent, by which programs name themselves.
	UserAgent string
	// Verb is the verb of the API: get, list, watch, create, update, patch, delete, deletecollection. For a
	// request without a resource, it is the HTTP method in lower case, and Resource is empty.
	Verb string
	// Group is the API group, such as apps. It is empty for the core group, which has pods for example.
	Group string
	// Version is the version of the group, such as v1.
	Version string
	// Resource is the plural name in lower case, such as deployments.
	Resource string
	// Subresource is the part of the path after the name of the object, such as status. It is empty for most
	// requests.
	Subresource string
	// Namespace is empty for requests for cluster-scoped objects and for all namespaces.
	Namespace string
	// Name is the name of the object. For a create, it is the name of the created object, or, if a fault prevented
	// that, the name in the request. It is empty for a create that was refused for another reason, or that has no
	// name in either place.
	Name string
	// Path is the path of the URL, without the query.
	Path string
	// Code is the HTTP status of the answer. It is 0 before the answer, and if the connection was cut off instead.
	Code int
	// Duration is the time from the arrival of the request to the end of its answer. It is 0 before that, as for a
	// watch that runs.
	Duration time.Duration
}

// Match selects requests by the fields of Request with the same names. An empty field matches all requests.
//
// The methods that take a Match panic if no request can match it, because a test would never notice: if the Verb does
// not exist, or if Group, Resource, Subresource or Namespace have capital letters or a slash.
type Match struct {
	// Verb is a verb of the API: get, list, watch, create, update, patch (which is also the verb of a server-side
	// apply), delete or deletecollection.
	Verb string
	// Group is the API group without a version, such as apps. Empty matches the core group and all others.
	Group string
	// Resource is the plural name in lower case, such as deployments.
	Resource string
	// Subresource is the subresource, such as status. Empty matches requests with a subresource and without one.
	Subresource string
	// Namespace is the namespace of the objects.
	Namespace string
	// Name is the name of the object.
	Name string
	// User is the name of the user, such as system:serviceaccount:team:robot.
	User string
}

// Requests returns the requests of clients so far that match m, in the order in which they arrived. At least the
// last 50,000 requests are kept. Writes of controllers in the server are not requests. It panics if no request can
// match, or without Testing.Record, which ForTest sets.
func (s *Server) Requests(m Match) []Request {
	var out []Request
	for _, r := range s.traffic().Requests(m.checked()) {
		out = append(out, Request(r))
	}
	return out
}

// ForgetRequests removes all recorded requests. It panics without Testing.Record.
func (s *Server) ForgetRequests() { s.traffic().Forget() }

// CutWatches ends the running watches of clients that match m, and returns their number. Clients usually resume
// them. To make clients list again, first inject Fail{Code: 410} into watches. It panics if no request can match,
// or without Testing.Record.
func (s *Server) CutWatches(m Match) int { return s.traffic().CutWatches(m.checked()) }

// checked returns m for package traffic. It panics if no request can match.
func (m Match) checked() traffic.Match {
	out := traffic.Match(m)
	if err := out.Check(); err != nil {
		panic("keelson: " + err.Error())
	}
	return out
}

// Fault is something that happens to a request: Fail, Delay, Drop, DropAnswer or Stale. See Server.Inject.
type Fault interface{ fault() traffic.Fault }

// Fail answers a request with an error, and does not carry it out.
type Fail struct {
	// Code is the HTTP status, such as 409, 410, 429, 500 or 503. The body is the Status that kube-apiserver sends
	// with that code.
	Code int
	// RetryAfter is the header Retry-After, in whole seconds; 0 means no header. It is allowed for the codes 429,
	// 503 and 504. client-go then sends the request again by itself.
	RetryAfter time.Duration
}

// Delay has a request wait before it goes on.
type Delay struct {
	// For is the time that it waits.
	For time.Duration
}

// Drop closes the connection without an answer (with HTTP/2 it resets the stream), and does not carry out the request.
type Drop struct{}

// DropAnswer carries out the request, and then closes the connection without an answer.
type DropAnswer struct{}

// Stale answers a list with the objects at an older resource version. It needs a Match with the Verb list.
type Stale struct {
	// ResourceVersion is that of an object or of a list.
	ResourceVersion string
}

func (f Fail) fault() traffic.Fault       { return traffic.Fail(f) }
func (d Delay) fault() traffic.Fault      { return traffic.Delay(d) }
func (d Drop) fault() traffic.Fault       { return traffic.Drop(d) }
func (a DropAnswer) fault() traffic.Fault { return traffic.DropAnswer(a) }
func (s Stale) fault() traffic.Fault      { return traffic.Stale(s) }

// Inject makes faults happen to the requests of clients that match, until remove is called:
//
//	s.Inject(keelson.Match{Verb: "get", Resource: "secrets"}, keelson.Fail{Code: 503})
//	s.Inject(keelson.Match{User: "jane"}, keelson.Delay{For: time.Second}, keelson.Drop{})
//
// Several faults happen in their order. Fail and Drop end the request, so they have to be the last one. A request meets
// the faults of the first injection that matches and has requests left. Requests that have begun, such as watches, are
// not affected.
//
// Inject panics if the faults could not happen: no request can match; the Match has the Verb create and the Name
// of a new object, which the server does not know yet at that time; a Code is not an error status, or does not
// allow the given RetryAfter; a duration is not positive. It also panics without Testing.Record, which ForTest
// sets.
func (s *Server) Inject(m Match, faults ...Fault) (remove func()) {
	return s.inject(traffic.All, m, faults)
}

// InjectN is Inject for the next n requests that match. Later requests meet the next injection that matches.
//
//	s.InjectN(1, keelson.Match{Verb: "update", Resource: "leases"}, keelson.Fail{Code: 409})
func (s *Server) InjectN(n int, m Match, faults ...Fault) (remove func()) {
	return s.inject(n, m, faults)
}

func (s *Server) inject(n int, m Match, faults []Fault) (remove func()) {
	var list []traffic.Fault
	for _, f := range faults {
		list = append(list, f.fault())
	}
	remove, err := s.traffic().Inject(n, traffic.Match(m), list...)
	if err != nil {
		panic("keelson: " + err.Error())
	}
	return remove
}

func (s *Server) traffic() *traffic.Traffic {
	t := s.server.Traffic()
	if t == nil {
		panic("keelson: a server that was started without Testing.Record has no requests and faults")
	}
	return t
}

// Webhook is a webhook of a test, which the server reaches by HTTPS.
type Webhook struct {
	// URL is the address of the webhook without a path, such as https://127.0.0.1:40123.
	URL string
	// CABundle is the authority of its certificate, in PEM.
	CABundle []byte

	server *http.Server
}

// ServeWebhook serves h by HTTPS on a free port of the loopback interface, with a certificate made for it. The caller
// must call Close.
func ServeWebhook(h http.Handler) (*Webhook, error) {
	loopback := net.IPv4(127, 0, 0, 1)
	made, err := certs.Ensure(certs.Options{Serving: true, Names: []string{"localhost"}, IPs: []net.IP{loopback}})
	if err != nil {
		return nil, err
	}
	pair, err := made.Serving.TLS()
	if err != nil {
		return nil, err
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: loopback})
	if err != nil {
		return nil, err
	}
	w := &Webhook{URL: "https://" + l.Addr().String(), CABundle: made.CA, server: &http.Server{
		Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}}
	go func() { _ = w.server.ServeTLS(l, "", "") }() // its error is that of Close
	return w, nil
}

// Close ends the webhook. It accepts no new calls and waits up to a second for running ones. Besides the requests
// of a test, the server's own controllers cause calls, for example for the ConfigMap kube-root-ca.crt of each
// namespace.
func (w *Webhook) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if w.server.Shutdown(ctx) == nil {
		return nil
	}
	if err := w.server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// ClientConfig returns the URL and the authority of the webhook at a path, for a MutatingWebhookConfiguration or a
// ValidatingWebhookConfiguration. The conversion webhook of a CustomResourceDefinition has the same two fields.
func (w *Webhook) ClientConfig(path string) admissionregistrationv1.WebhookClientConfig {
	at := w.URL + (&url.URL{Path: path}).EscapedPath()
	return admissionregistrationv1.WebhookClientConfig{URL: &at, CABundle: w.CABundle}
}
