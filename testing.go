package keelson

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/internal/gateway/filter/traffic"
	"github.com/keelson-dev/keelson/internal/server/certs"
)

type (
	// Request is a request that a client has sent; see Server.Requests.
	Request = traffic.Request
	// Match selects requests. An empty field matches all.
	Match = traffic.Match
	// Fault is something that goes wrong with requests; see Server.Inject.
	Fault = traffic.Fault
)

// Requests returns the requests of clients so far that match, in the order in which they arrived: who has sent them, the
// verb and the object, and the status of the answer. The last 50,000 requests at least are kept. Writes of controllers in
// the server are not requests. It panics without Config.Testing, which ForTest sets.
func (s *Server) Requests(m Match) []Request { return s.traffic().Requests(m) }

// ForgetRequests makes Requests begin anew. It panics without Config.Testing.
func (s *Server) ForgetRequests() { s.traffic().Forget() }

// Inject makes requests of clients fail, wait or get old answers, as Fault describes. A request meets the first fault
// that matches and was not met Times before. remove takes the fault away. It panics without Config.Testing.
func (s *Server) Inject(f Fault) (remove func()) { return s.traffic().Inject(f) }

// CutWatches ends the watches of clients that match and run now, and returns how many they are. Clients usually resume
// them; inject a Fault with Code 410 on watches before, to make them list again. It panics without Config.Testing.
func (s *Server) CutWatches(m Match) int { return s.traffic().CutWatches(m) }

func (s *Server) traffic() *traffic.Traffic {
	t := s.server.Traffic()
	if t == nil {
		panic("keelson: a server that was started without Config.Testing has no requests and faults")
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

// Close ends the webhook at once.
func (w *Webhook) Close() error {
	if err := w.server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// ClientConfig returns how the server calls the webhook at a path, for a MutatingWebhookConfiguration or a
// ValidatingWebhookConfiguration. The conversion webhook of a CustomResourceDefinition has the same two fields.
func (w *Webhook) ClientConfig(path string) admissionregistrationv1.WebhookClientConfig {
	at := w.URL + (&url.URL{Path: path}).EscapedPath()
	return admissionregistrationv1.WebhookClientConfig{URL: &at, CABundle: w.CABundle}
}
