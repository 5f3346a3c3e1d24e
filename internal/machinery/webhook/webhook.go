// Package webhook sends requests to webhooks: conversion and admission webhooks, webhooks for authentication and
// authorization, and receivers of audit events. It handles addresses, TLS, credentials, time-outs, retries and the size
// of responses. The bodies of requests and responses are bytes; callers encode and decode them.
//
// A Client never follows redirects and ignores the proxy settings of the environment: the request, which may contain
// secrets, is sent to the configured address only. Each Client has its own connections, at most MaxConns, so a webhook
// that does not respond delays no other.
package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/tracing"
)

const (
	// DefaultTimeout is the time limit of a call whose Timeout is zero.
	DefaultTimeout = 30 * time.Second
	// MaxConns is the largest number of connections of one Client. If all are in use, a call waits for one until its
	// own time-out.
	MaxConns = 128
)

// A Target is the address of a webhook: a URL or a Service, as in the clientConfig of API objects. If both are set, the
// Service is used.
type Target struct {
	URL     string
	Service *Service
	// CABundle contains the trusted certificate authorities in PEM. If it contains only white space, those of the
	// operating system are trusted.
	CABundle []byte
}

// A Service is a webhook inside the cluster. Its serving certificate must be valid for <name>.<namespace>.svc.
type Service struct {
	Namespace, Name, Path string
	Port                  int32 // 443 if zero
}

// A DialFunc opens connections, as (*net.Dialer).DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// A Resolver returns the address ("host:port") of the given port of a Service. It is called for each new connection.
type Resolver func(ctx context.Context, namespace, name string, port int32) (address string, err error)

// ResolveByName returns "<name>.<namespace>.svc:<port>", which is then resolved by DNS.
func ResolveByName(_ context.Context, namespace, name string, port int32) (string, error) {
	if namespace == "" || name == "" || port == 0 {
		return "", errors.New("cannot resolve an empty service name or namespace or port")
	}
	return net.JoinHostPort(name+"."+namespace+".svc", strconv.Itoa(int(port))), nil
}

// Options are shared by the clients of one server. Each field may be zero.
type Options struct {
	// Resolve finds the addresses of Services; ResolveByName if nil.
	Resolve Resolver
	// Dial opens connections; a net.Dialer if nil.
	Dial DialFunc
	// DialService opens connections to Services; Dial if nil.
	DialService DialFunc
	// Credentials returns the credentials for the webhook at an address ("name.namespace.svc:443" for a Service). If it
	// is nil, calls are not authenticated.
	Credentials func(address string) (Credentials, error)
	// Metrics may be nil.
	Metrics *Metrics
}

// Credentials authenticate the server to a webhook.
type Credentials struct {
	Token              string // if set, Username and Password are not sent
	Username, Password string
	Certificate, Key   []byte // PEM
}

// New returns a client of the webhook at a target. It opens no connection. It fails if the target, the CABundle or the
// credentials are invalid.
func New(t Target, o Options) (*Client, error) {
	if t.Service != nil {
		return newForService(t, o)
	}
	if t.URL == "" {
		return nil, errors.New("webhook configuration must have either service or URL")
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, fmt.Errorf("Unparsable URL: %v", err)
	}
	e := endpoint{scheme: u.Scheme, host: u.Host, path: u.Path, caBundle: t.CABundle, dial: o.dialer()}
	return e.client(net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")), o)
}

func newForService(t Target, o Options) (*Client, error) {
	s := *t.Service
	s.Port = cmp.Or(s.Port, 443)
	name := s.Name + "." + s.Namespace + ".svc"
	host := net.JoinHostPort(name, strconv.Itoa(int(s.Port)))
	resolve, dial := o.Resolve, o.DialService
	if dial == nil {
		dial = o.dialer()
	}
	if resolve == nil {
		resolve = ResolveByName
	}
	e := endpoint{scheme: "https", host: host, path: s.Path, caBundle: t.CABundle, serverName: name}
	e.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		address, err := resolve(ctx, s.Namespace, s.Name, s.Port)
		if err != nil {
			return nil, err
		}
		return dial(ctx, network, address)
	}
	return e.client(host, o)
}

func (o Options) dialer() DialFunc {
	if o.Dial != nil {
		return o.Dial
	}
	return (&net.Dialer{Timeout: DefaultTimeout, KeepAlive: 30 * time.Second}).DialContext
}

// An endpoint contains what is needed to connect to a webhook, made from a Target or from a kubeconfig file.
type endpoint struct {
	scheme, host, path string
	serverName         string // verified in the serving certificate; the host if empty
	caBundle           []byte
	insecure           bool // do not verify the serving certificate; only a kubeconfig file can set it
	http2              bool
	dial               DialFunc
}

// client returns a client of the endpoint with the credentials for address.
func (e endpoint) client(address string, o Options) (*Client, error) {
	var credentials Credentials
	if o.Credentials != nil {
		var err error
		if credentials, err = o.Credentials(address); err != nil {
			return nil, err
		}
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: e.serverName, InsecureSkipVerify: e.insecure}
	if bundle := strings.TrimSpace(string(e.caBundle)); bundle != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(bundle)) {
			return nil, errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	auth, err := newClientAuth(credentials)
	if err != nil {
		return nil, err
	}
	config.GetClientCertificate = auth.certificate
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	// One HTTP/2 connection would send all requests to the same Pod of a Service (kubernetes/kubernetes#75791).
	protocols.SetHTTP2(e.http2)
	transport := &http.Transport{
		DialContext: e.dial, TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second, Protocols: protocols,
		MaxConnsPerHost: MaxConns, MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		// Pings detect a broken HTTP/2 connection after at most the sum of these times.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	s := &settings{
		url:       url.URL{Scheme: e.scheme, Host: e.host, Path: path.Join("/", e.path)},
		transport: transport, auth: auth, metrics: o.Metrics, pending: new(pendingBodies),
	}
	s.http = &http.Client{
		Transport:     tracing.Transport(transport),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c := &Client{}
	c.current.Store(s)
	return c, nil
}
