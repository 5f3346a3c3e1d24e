// Package proxy forwards a request to another server and streams the response back. It keeps only one buffer in memory
// for each direction. Request bodies, endless responses, trailers and connections that are upgraded to another protocol
// (SPDY, WebSocket) are streamed.
//
// The caller chooses the destination of a request (Target) and responds to errors (Handler.Error). The package knows
// nothing about the resources of the API.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"
)

// flushInterval is the longest time that a part of a response with a known length waits in a buffer. Responses without
// a known length, such as watches, are flushed after each read.
const flushInterval = 200 * time.Millisecond

// A Target is the destination of one request.
type Target struct {
	// URL is the whole URL of the request: scheme, host, path and query.
	URL *url.URL
	// Transport connects to the host of URL.
	Transport *Transport
	// Addresses, unless empty, are the addresses ("host:port") to connect to; the first that accepts a connection is
	// used. TLS still verifies the name in URL. The caller uses Addresses if it has resolved and checked the host
	// before.
	Addresses []string
	// Host is the Host header that the server gets. Empty means the one that the client has sent.
	Host string
	// Header is added to the request, and replaces headers of the client of the same names.
	Header http.Header
}

// A Handler forwards requests to one target. All fields except Target and Error may be zero.
type Handler struct {
	Target Target
	// Error answers a request that could not be forwarded. It is not called after a part of the response was sent.
	Error func(w http.ResponseWriter, r *http.Request, err error)
	// UpgradeOnly refuses requests that do not ask for another protocol, with ErrUpgradeRequired.
	UpgradeOnly bool
	// Rewrite, unless it is nil, changes links in responses so that they lead through the proxy.
	Rewrite *Rewriter
	// RefuseRedirects answers 502 to a redirect instead of forwarding it. The proxy itself never follows one.
	RefuseRedirects bool
	// LongRunning means that the response takes long and comes in small parts, like the events of a watch. It is copied
	// with a small buffer.
	LongRunning bool
	// BytesPerSecond limits each direction of an upgraded connection. 0 means no limit.
	BytesPerSecond int64
}

// ErrUpgradeRequired is the error for a request that does not ask for another protocol, if Handler.UpgradeOnly is
// set.
var ErrUpgradeRequired = errors.New("Upgrade request required") //nolint:revive,staticcheck // clients see this text

// redirectMessage is the body of the response that replaces a redirect.
const redirectMessage = "the backend attempted to redirect this request, which is not permitted"

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case IsUpgrade(r):
		h.upgrade(w, r)
	case h.UpgradeOnly:
		h.Error(w, r, ErrUpgradeRequired)
	default:
		h.forward(w, r)
	}
}

// IsUpgrade reports whether the client wants to upgrade the connection to another protocol.
func IsUpgrade(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Connection"), func(value string) bool {
		return strings.Contains(strings.ToLower(value), "upgrade")
	})
}

// Refusal returns the reason why a request must not be forwarded to an API server, "" if it may be forwarded. A
// request that is refused could reach resources that this server has not authorized.
func Refusal(r *http.Request) string {
	switch {
	case UpgradesHTTP(r.Header):
		return "the protocol of the connection cannot be changed to HTTP or TLS"
	case LeavesPath(r.URL.Path):
		return "the path has a segment . or .."
	}
	return ""
}

// UpgradesHTTP reports whether a client wants to upgrade the connection to another version of HTTP, or to TLS. The
// client could then send requests that this server does not see, over a connection that is authenticated with the
// certificate of this server.
func UpgradesHTTP(h http.Header) bool {
	for _, value := range h["Upgrade"] {
		for _, protocol := range strings.Split(strings.ToLower(value), ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(protocol), "/")
			if name == "h2c" || name == "h2" || name == "http" || name == "tls" {
				return true
			}
		}
	}
	return false
}

// LeavesPath reports whether a decoded path has a segment that a server may understand as another path than the one
// that was authorized.
func LeavesPath(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// forward forwards an ordinary request.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request) {
	ctx := withAddresses(r.Context(), h.Target.Addresses)
	transport := http.RoundTripper(h.Target.Transport)
	if h.Rewrite != nil {
		transport = reachingTransport{transport}
	}
	forwarder := httputil.ReverseProxy{
		Rewrite:        h.rewriteRequest,
		Transport:      transport,
		FlushInterval:  flushInterval,
		BufferPool:     h.buffers(),
		ErrorLog:       log.New(io.Discard, "", 0), // Error handles errors; the rest is about gone clients
		ModifyResponse: h.modifyResponse,
		ErrorHandler:   h.Error,
	}
	forwarder.ServeHTTP(w, r.WithContext(ctx))
}

// buffers returns the buffers for copying a response.
func (h *Handler) buffers() httputil.BufferPool {
	if h.LongRunning {
		return smallBuffers{}
	}
	return h.Target.Transport.buffers
}

// reachingTransport is a transport that wraps all errors except a switchedError in an UnreachableError.
type reachingTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t reachingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err != nil && !errors.As(err, new(*switchedError)) {
		err = &UnreachableError{err}
	}
	return response, err
}

// A switchedError is returned if the backend has switched to another protocol, although no other was requested. Its text
// is that of kube-apiserver.
type switchedError struct{ protocol string }

// Error implements error.
func (e *switchedError) Error() string {
	return fmt.Sprintf(`backend tried to switch protocol %q when "" was requested`, e.protocol)
}

// An UnreachableError is returned by a proxy that rewrites links if the backend could not be reached, or if the header
// of its response could not be read.
type UnreachableError struct{ Err error }

// Error implements error.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("error trying to reach service: %v", e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// rewriteRequest makes the request that the server gets. net/http/httputil has removed the headers that are for one
// connection only (RFC 9110, section 7.6.1).
func (h *Handler) rewriteRequest(p *httputil.ProxyRequest) {
	p.Out.URL = h.Target.URL
	p.Out.Host = cmp.Or(h.Target.Host, p.In.Host)
	for _, name := range forwardedHeaders {
		if values, ok := p.In.Header[name]; ok {
			p.Out.Header[name] = values
		}
	}
	h.setHeaders(p.Out.Header, p.In)
	if h.Rewrite != nil {
		p.Out.Header.Set("X-Forwarded-Uri", h.Rewrite.forwardedURI(h.Target.URL))
	}
}

// forwardedHeaders name the original client of a request. net/http/httputil removes them, but a proxy between the
// client and this server may have set them, and kube-apiserver forwards them.
var forwardedHeaders = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// setHeaders changes the headers of a request that goes to the server. in is the request of the client.
func (h *Handler) setHeaders(out http.Header, in *http.Request) {
	removeIdentity(out)
	if client, _, ok := strings.Cut(in.RemoteAddr, "]:"); ok { // "[address]:port"
		appendForwardedFor(out, strings.TrimPrefix(client, "["))
	} else if i := strings.LastIndexByte(in.RemoteAddr, ':'); i > 0 {
		appendForwardedFor(out, in.RemoteAddr[:i])
	}
	for name, values := range h.Target.Header {
		out[name] = values
	}
}

func appendForwardedFor(h http.Header, client string) {
	if client == "" {
		return
	}
	if before := h.Values("X-Forwarded-For"); len(before) > 0 {
		client = strings.Join(before, ", ") + ", " + client
	}
	h.Set("X-Forwarded-For", client)
}

// removeIdentity removes the headers by which this server or a front proxy knows who the client is. The filters of the
// server remove them too; another server must not get them even if a filter is missing.
func removeIdentity(h http.Header) {
	for name := range h {
		// Some servers take an underscore for a hyphen.
		switch plain := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")); {
		case plain == "Authorization", plain == "X-Remote-User", plain == "X-Remote-Uid", plain == "X-Remote-Group",
			strings.HasPrefix(plain, "X-Remote-Extra-"), strings.HasPrefix(plain, "Impersonate-"):
			delete(h, name)
		}
	}
}

// modifyResponse changes a response before it is sent to the client.
func (h *Handler) modifyResponse(response *http.Response) error {
	redirects := response.StatusCode >= 300 && response.StatusCode <= 399 && response.Header.Get("Location") != ""
	if h.RefuseRedirects && redirects {
		_ = response.Body.Close() // the rest of it is not used
		response.StatusCode = http.StatusBadGateway
		response.Header, response.Trailer = http.Header{}, nil
		response.Body = io.NopCloser(strings.NewReader(redirectMessage))
		response.ContentLength = int64(len(redirectMessage))
		return nil
	}
	if h.Rewrite == nil {
		return nil
	}
	return h.Rewrite.response(response)
}

type addressKey struct{}

// withAddresses returns a context whose connections go to addresses.
func withAddresses(ctx context.Context, addresses []string) context.Context {
	if len(addresses) == 0 {
		return ctx
	}
	return context.WithValue(ctx, addressKey{}, addresses)
}
