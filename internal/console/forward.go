package console

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	dialTime      = 10 * time.Second
	handshakeTime = 10 * time.Second
	// headerTime is the time limit until the headers of a response arrive. API servers end ordinary requests after
	// a minute.
	headerTime = 2 * time.Minute
	idleTime   = 90 * time.Second
	maxHeader  = 1 << 20 // bytes of the headers of a response
	// reconnectPause is the least time between two calls of connect, which reads the kubeconfig.
	reconnectPause = 5 * time.Second
	// connectTime limits the time of such a call, including a credential plug-in.
	connectTime = 30 * time.Second
	// maxRepeated is the largest body that is kept, so that it can be sent again with new credentials. API servers refuse larger ones.
	maxRepeated = 3 << 20
)

// Upstream is an API server, with the connection data and the credentials for it.
type Upstream struct {
	URL    *url.URL    // its path is put in front of the paths of requests
	Header http.Header // added to each request
	TLS    *tls.Config
	Proxy  func(*http.Request) (*url.URL, error) // as in http.Transport
}

// impersonates reports whether the credentials are those of one user who acts as another one.
func (u *Upstream) impersonates() bool { return u.Header.Get("Impersonate-User") != "" }

// backend is an Upstream with its connections. upgrades is for WebSockets, which need HTTP/1.1.
type backend struct {
	Upstream
	requests, upgrades *http.Transport
}

func newBackend(u *Upstream) *backend {
	transport := func(http2 bool) *http.Transport {
		t := &http.Transport{
			DialContext:     (&net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}).DialContext,
			TLSClientConfig: u.TLS.Clone(), Proxy: u.Proxy, ForceAttemptHTTP2: http2,
			TLSHandshakeTimeout: handshakeTime, ResponseHeaderTimeout: headerTime, IdleConnTimeout: idleTime,
			MaxResponseHeaderBytes: maxHeader, DisableCompression: true,
			HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}, // a watch may be silent for long
		}
		if !http2 {
			t.Protocols = new(http.Protocols)
			t.Protocols.SetHTTP1(true)
		}
		return t
	}
	return &backend{Upstream: *u, requests: transport(true), upgrades: transport(false)}
}

// roundTrip sends a request of the page to the server.
func (b *backend) roundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	target := *b.URL
	target.Path = strings.TrimRight(b.URL.Path, "/") + r.URL.Path
	target.RawPath = strings.TrimRight(b.URL.EscapedPath(), "/") + r.URL.EscapedPath()
	target.RawQuery = r.URL.RawQuery
	out.URL, out.Host = &target, ""
	for name, values := range b.Header {
		out.Header[name] = values
	}
	if out.Header.Get("Upgrade") != "" {
		return b.upgrades.RoundTrip(out)
	}
	return b.requests.RoundTrip(out)
}

func (b *backend) close() {
	b.requests.CloseIdleConnections()
	b.upgrades.CloseIdleConnections()
}

// forwarder forwards the requests of the page. It is also the http.RoundTripper that sends them.
type forwarder struct {
	connect   func(context.Context) (*Upstream, error)
	now       func() time.Time
	log       *slog.Logger
	userAgent string
	current   atomic.Pointer[backend]

	mu     sync.Mutex // held while current is renewed; guards looked
	looked time.Time  // time of the last call of connect
}

// open connects to the server for the first time.
func (f *forwarder) open(ctx context.Context) error {
	u, err := f.connect(ctx)
	if err == nil {
		f.current.Store(newBackend(u))
		f.looked = f.now()
	}
	return err
}

// renewed returns a backend with new credentials after the server has refused those of refused, for example
// because a token has expired. It returns nil if there are no new credentials.
func (f *forwarder) renewed(ctx context.Context, refused *backend) *backend {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.current.Load(); b != refused {
		return b // another request has already renewed it
	}
	if f.now().Sub(f.looked) < reconnectPause {
		return nil
	}
	f.looked = f.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTime)
	defer cancel()
	u, err := f.connect(ctx)
	if err != nil {
		f.log.Warn("the server refuses the credentials of the kubeconfig, and there are no others", "error", err)
		return nil
	}
	b := newBackend(u)
	f.current.Store(b)
	refused.close()
	return b
}

// RoundTrip implements http.RoundTripper. It returns responses that are safe for a browser.
func (f *forwarder) RoundTrip(r *http.Request) (*http.Response, error) {
	next, repeats, err := keepBody(r)
	if err != nil {
		return nil, err
	}
	b := f.current.Load()
	response, err := b.roundTrip(next())
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		// If this request cannot be repeated, the new credentials are still useful for the next one.
		if again := f.renewed(r.Context(), b); again != nil && repeats {
			_ = response.Body.Close() // it is not used
			response, err = again.roundTrip(next())
		}
	}
	if err != nil {
		return nil, err
	}
	return forBrowser(response), nil
}

// keepBody returns a function that returns the request for each attempt, and whether there may be several
// attempts. There may be if the request has no body, or one that was read to the end and is not larger than
// maxRepeated.
func keepBody(r *http.Request) (next func() *http.Request, repeats bool, err error) {
	same := func() *http.Request { return r }
	if r.Body == nil || r.Body == http.NoBody {
		return same, true, nil
	}
	if r.ContentLength < 0 || r.ContentLength > maxRepeated {
		return same, false, nil
	}
	defer r.Body.Close()
	kept, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, false, err
	}
	return func() *http.Request {
		out := r.WithContext(r.Context())
		out.Body = io.NopCloser(bytes.NewReader(kept))
		return out
	}, true, nil
}

// requestHeaders are the headers of the page that are forwarded. All others are dropped: cookies, headers in which
// browsers describe the page, and credentials.
var requestHeaders = []string{
	"Accept", "Accept-Encoding", "Content-Type", "Content-Encoding", "If-Match", "If-None-Match", "If-Modified-Since",
	"Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions",
}

// bearerProtocol is the prefix of a WebSocket protocol that contains a token. Browsers send tokens to Kubernetes
// in this way.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// toServer returns the headers of the forwarded request. in has the headers from the page.
func toServer(in http.Header, userAgent string) http.Header {
	out := http.Header{"User-Agent": {userAgent}}
	for name, values := range in {
		if slices.Contains(requestHeaders, name) || strings.HasPrefix(name, "Impersonate-") {
			out[name] = values
		}
	}
	var protocols []string
	for _, value := range in["Sec-Websocket-Protocol"] {
		for p := range strings.SplitSeq(value, ",") {
			if p = strings.TrimSpace(p); p != "" && !strings.HasPrefix(p, bearerProtocol) && !strings.HasPrefix(p, sessionProtocol) {
				protocols = append(protocols, p)
			}
		}
	}
	if len(protocols) > 0 {
		out.Set("Sec-Websocket-Protocol", strings.Join(protocols, ", "))
	}
	return out
}

// responseHeaders are the headers of the server that are forwarded to the page. All others are dropped: cookies,
// requests for credentials, permissions for other origins, and redirects.
var responseHeaders = []string{
	"Audit-Id", "Cache-Control", "Content-Encoding", "Content-Length", "Date", "Etag", "Expires", "Last-Modified", "Retry-After",
	"Vary", "Warning", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid",
}

// forBrowser returns a response with the headers that are safe for a browser. No content from the server may be
// shown or run as a page of the console's origin, because an extension API server or a proxied pod may be hostile.
// The result is a new http.Response, so that the trailers of the first one are not sent.
func forBrowser(response *http.Response) *http.Response {
	out, header := *response, http.Header{}
	for _, name := range responseHeaders {
		if values, ok := response.Header[name]; ok {
			header[name] = values
		}
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		for _, name := range []string{"Connection", "Upgrade", "Sec-Websocket-Accept", "Sec-Websocket-Protocol", "Sec-Websocket-Extensions"} {
			if values, ok := response.Header[name]; ok {
				header[name] = values
			}
		}
	} else {
		kind := "application/octet-stream"
		if values := response.Header["Content-Type"]; len(values) == 1 && harmless(values[0]) {
			kind = values[0]
		} else {
			header.Set("Content-Disposition", "attachment")
		}
		header.Set("Content-Type", kind)
	}
	setForwardedHeaders(header)
	out.Header, out.Trailer = header, nil
	return &out
}

// setForwardedHeaders sets the headers of all responses to forwarded requests.
func setForwardedHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
}

// harmless reports whether a browser never shows a media type as a page and never runs it.
func harmless(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	subtype, found := strings.CutPrefix(kind, "application/")
	if !found {
		return kind == "text/plain"
	}
	return slices.Contains([]string{"json", "yaml", "cbor", "cbor-seq", "vnd.kubernetes.protobuf", "openmetrics-text"}, subtype) ||
		strings.HasSuffix(subtype, "+json") || strings.HasSuffix(subtype, "+protobuf")
}

// serve forwards a request that guard has accepted.
func (f *forwarder) serve(w http.ResponseWriter, r *http.Request) {
	if b := f.current.Load(); b.impersonates() {
		for name := range r.Header {
			if strings.HasPrefix(name, "Impersonate-") {
				setForwardedHeaders(w.Header())
				refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden,
					"the kubeconfig acts as another user already, so the console cannot")
				return
			}
		}
	}
	reverse := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			upgrade := p.Out.Header["Upgrade"]
			p.Out.Header = toServer(p.In.Header, f.userAgent)
			if len(upgrade) > 0 {
				p.Out.Header["Upgrade"], p.Out.Header["Connection"] = upgrade, []string{"Upgrade"}
			}
		},
		Transport: f,                         // responses without a length, such as watches, are flushed after each read
		ErrorLog:  log.New(nowhere{}, "", 0), // ErrorHandler has the errors; others mean that the page is gone
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			setForwardedHeaders(w.Header())
			refuse(w, http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, "the server cannot be reached: %v", err)
		},
	}
	reverse.ServeHTTP(finalWriter{w}, r)
}

// nowhere is a writer that drops everything.
type nowhere struct{}

// Write implements io.Writer.
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// finalWriter drops informational responses of the server, because their headers were not filtered by forBrowser.
type finalWriter struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w finalWriter) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(code)
	}
}

// Unwrap is for http.ResponseController.
func (w finalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
