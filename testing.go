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
	Time time.Time
	// User and Groups are those of the user whose permissions counted, after impersonation. User is empty if the request
	// was not authenticated.
	User      string
	Groups    []string
	UserAgent string
	// Verb is the verb of the API: get, list, watch, create, update, patch, delete, deletecollection. It is the method in lower
	// case, and Resource is empty, if the request is not about a resource.
	Verb                                  string
	Group, Version, Resource, Subresource string
	Namespace                             string
	// Name is the name of the object, also of one that the request has created.
	Name string
	Path string
	// Code is the HTTP status of the answer. It is 0 before the answer, and if the connection was cut off instead.
	Code int
}

// Match selects requests. An empty field matches all.
type Match struct {
	Verb, Group, Resource, Subresource, Namespace, Name, User string
}

// Fault is something that goes wrong with requests; see Server.Inject.
type Fault struct {
	// On are the requests. The Name of a create is empty.
	On Match
	// Times is how many requests meet the fault; 0 is all.
	Times int
	// Latency is how long the request waits before anything else happens.
	Latency time.Duration
	// Code is the HTTP status that is answered, such as 409, 410, 429, 500 or 503, with a Status as kube-apiserver makes it
	// for that code. 0 carries out the request.
	Code int
	// RetryAfter is the header Retry-After of a Code, in whole seconds; 0 leaves it out.
	RetryAfter time.Duration
	// Drop closes the connection without an answer (with HTTP/2 it resets the stream), and does not carry out the request.
	Drop bool
	// DropAnswer carries out the request, and then closes the connection without an answer.
	DropAnswer bool
	// StaleVersion, unless it is empty, is a resource version: a list is answered as it was then. Other requests are not
	// changed.
	StaleVersion string
}

// Requests returns the requests of clients so far that match, in the order in which they arrived: who has sent them, the
// verb and the object, and the status of the answer. The last 50,000 requests at least are kept. Writes of controllers in
// the server are not requests. It panics without Testing.Record, which ForTest sets.
func (s *Server) Requests(m Match) []Request {
	var out []Request
	for _, r := range s.traffic().Requests(traffic.Match(m)) {
		out = append(out, Request(r))
	}
	return out
}

// ForgetRequests removes all recorded requests. It panics without Testing.Record.
func (s *Server) ForgetRequests() { s.traffic().Forget() }

// Inject makes requests of clients fail, wait or get old answers, as Fault describes. A request meets the first fault
// that matches and was not met Times before. remove takes the fault away. It panics without Testing.Record.
func (s *Server) Inject(f Fault) (remove func()) {
	return s.traffic().Inject(traffic.Fault{
		On: traffic.Match(f.On), Times: f.Times, Latency: f.Latency, Code: f.Code, RetryAfter: f.RetryAfter,
		Drop: f.Drop, DropAnswer: f.DropAnswer, StaleVersion: f.StaleVersion,
	})
}

// CutWatches ends the watches of clients that match and run now, and returns how many they are. Clients usually resume
// them; inject a Fault with Code 410 on watches before, to make them list again. It panics without Testing.Record.
func (s *Server) CutWatches(m Match) int { return s.traffic().CutWatches(traffic.Match(m)) }

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

// Close ends the webhook. It takes no new calls and waits up to a second for those that run: beside the requests of a
// test, the server's own controllers call a webhook, for example for the ConfigMap kube-root-ca.crt of each namespace.
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

// ClientConfig returns how the server calls the webhook at a path, for a MutatingWebhookConfiguration or a
// ValidatingWebhookConfiguration. The conversion webhook of a CustomResourceDefinition has the same two fields.
func (w *Webhook) ClientConfig(path string) admissionregistrationv1.WebhookClientConfig {
	at := w.URL + (&url.URL{Path: path}).EscapedPath()
	return admissionregistrationv1.WebhookClientConfig{URL: &at, CABundle: w.CABundle}
}
