package console

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/proxy"
)

const (
	loginPath = Root + "login"
	// sessionProtocol is the prefix of a WebSocket protocol that contains the page's secret.
	sessionProtocol = "keelson-console."
	// cookiePrefix begins the name of the cookie. The port follows, because browsers send a cookie to all ports of a host, and
	// several consoles may run at a time.
	cookiePrefix = "keelson-console-"

	requestHeaderTime = 10 * time.Second
	requestBodyTime   = 30 * time.Second // from the end of the headers; the client is on this machine
	maxRequestHeader  = 64 << 10
	maxConnections    = 128
	stopTime          = time.Second
)

// ProxyOptions are the options of a Proxy.
type ProxyOptions struct {
	// Connect returns the server and the credentials for it. It is called again if the server refuses them.
	Connect func(context.Context) (*Upstream, error)
	Version string // of the program
	Log     *slog.Logger
	Now     func() time.Time
}

// Proxy serves the page on the loopback interface and forwards its requests to an API server. Only the browser of
// the person who started it can use it, because that browser has opened a link with a secret and so has a session.
// The page does not get the credentials of the kubeconfig.
type Proxy struct {
	o        ProxyOptions
	guard    guard
	sessions sessions
	page     *Handler
	forward  forwarder
	port     string
}

// NewProxy returns a proxy for a port of the loopback interface. It fails if Connect fails.
func NewProxy(ctx context.Context, port int, o ProxyOptions) (*Proxy, error) {
	p := &Proxy{
		o: o, guard: newGuard(port), port: strconv.Itoa(port),
		forward: forwarder{connect: o.Connect, now: o.Now, log: o.Log, userAgent: "keelson-console/" + o.Version},
	}
	if err := p.forward.open(ctx); err != nil {
		return nil, err
	}
	p.page = New(Options{Version: o.Version, Server: p.Server(), Log: o.Log, Now: o.Now})
	return p, nil
}

// Server returns the URL of the server.
func (p *Proxy) Server() string { return p.forward.current.Load().URL.String() }

// NewLink returns a URL that starts a session. It can be opened once, within linkTTL. Earlier links become
// invalid.
func (p *Proxy) NewLink() string {
	return "http://" + p.guard.hosts[0] + loginPath + "?once=" + p.sessions.newLink(p.o.Now())
}

// Serve serves the connections of a listener until ctx ends. It closes the listener.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	all := &connections{Listener: l, most: maxConnections}
	s := &http.Server{
		ConnState: all.note, ConnContext: all.connContext,
		Handler: all.serve(p), ReadHeaderTimeout: requestHeaderTime, IdleTimeout: idleTime, MaxHeaderBytes: maxRequestHeader,
		BaseContext: func(net.Listener) context.Context { return ctx }, // its end ends watches and WebSockets
		ErrorLog:    log.New(nowhere{}, "", 0),
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			_ = s.Close() // this closes the remaining connections
		}
	})
	err := s.Serve(all)
	if stop() {
		return err // the listener has failed
	}
	<-closed
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	no := p.guard.check(r)
	path := r.URL.Path
	switch {
	case no != nil:
	case path == loginPath:
		p.serveLogin(w, r)
		return
	case Serves(path) && path != configPath:
		p.page.ServeHTTP(w, r)
		return
	case !p.known(r):
		w.Header().Set(HeaderName, "no-session")
		no = &refusal{http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
			"open the link that keelson console has printed in the terminal; Enter prints another one"}
	case path == configPath:
		p.page.ServeHTTP(w, r)
		return
	case path == "/":
		setHeaders(w.Header())
		http.Redirect(w, r, Root, http.StatusFound)
		return
	case !forwards(path):
		no = &refusal{http.StatusNotFound, metav1.StatusReasonNotFound, "the console does not forward this path"}
	default:
		if why := proxy.Refusal(r); why != "" {
			no = &refusal{http.StatusBadRequest, metav1.StatusReasonBadRequest, why}
			break
		}
		p.forward.serve(w, r)
		return
	}
	setHeaders(w.Header())
	refuse(w, no.code, no.reason, "%s", no.message)
}

// known reports whether a request has both secrets of a session.
func (p *Proxy) known(r *http.Request) bool {
	one, ok := p.session(r)
	return ok && equal(pageSecret(r), one.page)
}

// session returns the session of the cookie of a request.
func (p *Proxy) session(r *http.Request) (session, bool) {
	for _, c := range r.CookiesNamed(cookiePrefix + p.port) {
		if one, ok := p.sessions.find(c.Value); ok {
			return one, true
		}
	}
	return session{}, false
}

// pageSecret returns the secret that the page sends: in a header, or as a protocol of a WebSocket, which has no
// such header.
func pageSecret(r *http.Request) string {
	if secret := r.Header.Get(HeaderName); secret != "" {
		return secret
	}
	for _, value := range r.Header["Sec-Websocket-Protocol"] {
		for protocol := range strings.SplitSeq(value, ",") {
			if secret, ok := strings.CutPrefix(strings.TrimSpace(protocol), sessionProtocol); ok {
				return secret
			}
		}
	}
	return ""
}

// serveLogin starts a session if the link is valid. A browser that already has a session is redirected to the page
// anyway.
func (p *Proxy) serveLogin(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	if !allow(w, r, http.MethodGet) { // HEAD must not use the link up
		return
	}
	begun, ok := p.sessions.open(r.URL.Query().Get("once"), p.o.Now())
	target := Root
	if ok {
		http.SetCookie(w, &http.Cookie{
			Name: cookiePrefix + p.port, Value: begun.cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
		target += "#session=" + begun.page // browsers do not send the part after #; the page reads and keeps it
	} else if _, known := p.session(r); known {
		ok = true // the URL gets no page secret, which somebody with only the cookie must not get
	}
	if !ok {
		sum := sha256.Sum256([]byte(expiredStyle))
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "+
			"style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(expiredPage)) // the client may be gone
		return
	}
	w.Header().Set("Location", target)
	w.WriteHeader(http.StatusSeeOther)
}

const (
	expiredStyle = `body{font:16px/1.5 system-ui,sans-serif;max-width:42em;margin:4em auto;padding:0 1em;color-scheme:light dark}`
	expiredPage  = "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width\">\n<title>Keelson</title>\n<style>" + expiredStyle + "</style>\n" +
		"<h1>This link is no longer valid</h1>\n<p>A link works once, and for 10 minutes. Press Enter in the terminal where " +
		"<code>keelson console</code> runs, and open the link that it prints; or start the command again.</p>\n</html>\n"
)
