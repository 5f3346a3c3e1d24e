// Package webhook calls programs beside the server that decide or change things for
// it: conversion and admission webhooks, reviewers of tokens and of access, and
// sinks of audit events. It knows how such a program is reached and trusted, how
// long it may take and how much it may say; what is asked and answered is bytes, and
// the caller's.
//
// A Client never follows redirects and uses no proxy of its environment: the
// question, which may hold secrets, goes to the configured place or nowhere. Each
// Client has connections of its own, at most MaxConns, so that one webhook
// that hangs holds up nobody else's.
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
	// DefaultTimeout is how long a call may take if nothing else is said.
	DefaultTimeout = 30 * time.Second
	// MaxConns is the number of connections to one webhook. A call that finds none
	// free waits for one within its own time-out.
	MaxConns = 128
)

// A Target says where a webhook is, as the client configuration of a webhook in
// the API does: by URL or as a Service, which goes before.
type Target struct {
	URL     string
	Service *Service
	// CABundle is PEM of the authorities that are trusted; those of the system if it
	// is empty but for white space.
	CABundle []byte
}

// A Service is a webhook inside of the cluster. It is reached at Port, 443 if that
// is zero, and must prove to be <name>.<namespace>.svc.
type Service struct {
	Namespace, Name, Path string
	Port                  int32
}

// A DialFunc opens connections, as (*net.Dialer).DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// A Resolver returns the address ("host:port") at which the port of a Service is
// reached. It is asked for each new connection.
type Resolver func(ctx context.Context, namespace, name string, port int32) (address string, err error)

// ResolveByName leaves the name of a Service to DNS.
func ResolveByName(_ context.Context, namespace, name string, port int32) (string, error) {
	if namespace == "" || name == "" || port == 0 {
		return "", errors.New("cannot resolve an empty service name or namespace or port")
	}
	return net.JoinHostPort(name+"."+namespace+".svc", strconv.Itoa(int(port))), nil
}

// Options are what the clients of one server share. The zero value is good.
type Options struct {
	// Resolve finds Services; ResolveByName if nil.
	Resolve Resolver
	// Dial opens connections; that of a net.Dialer if nil.
	Dial DialFunc
	// DialService opens those to Services; Dial if nil.
	DialService DialFunc
	// Credentials returns what the server shows to the webhook at an address
	// ("name.namespace.svc:443" for a Service); nothing if nil.
	Credentials func(address string) (Credentials, error)
	// UserAgent is told to webhooks; "kube-apiserver-admission" if empty.
	UserAgent string
	// Metrics counts certificates of bad form; none are counted if nil.
	Metrics *Metrics
}

// Credentials are how the server shows who it is.
type Credentials struct {
	Token              string // goes before the password
	Username, Password string
	Certificate, Key   []byte // PEM
}

// New returns a client of the webhook at a target. It opens no connection.
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
	if s.Port == 0 {
		s.Port = 443
	}
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

// An endpoint is a target when it is known what kind it is of.
type endpoint struct {
	scheme, host, path string
	serverName         string // "" is that of the URL
	caBundle           []byte
	insecure           bool // any certificate will do; a kubeconfig may say so
	http2              bool
	dial               DialFunc
}

// client makes the client of an endpoint, which shows the credentials of address.
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
	shown, err := newShown(credentials)
	if err != nil {
		return nil, err
	}
	config.GetClientCertificate = shown.certificate
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	// Requests over one connection of HTTP/2 would all go to one of the processes
	// behind a Service (kubernetes/kubernetes#75791).
	protocols.SetHTTP2(e.http2)
	transport := &http.Transport{
		DialContext: e.dial, TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second, Protocols: protocols,
		MaxConnsPerHost: MaxConns, MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		// A connection of HTTP/2 whose other end is gone is found out within this time.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	s := &settings{
		url:       url.URL{Scheme: e.scheme, Host: e.host, Path: path.Join("/", e.path)},
		transport: transport, shown: shown, metrics: o.Metrics, userAgent: o.UserAgent, answers: new(answers),
	}
	if s.userAgent == "" {
		s.userAgent = "kube-apiserver-admission"
	}
	s.http = &http.Client{
		Transport:     tracing.Transport(transport),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c := &Client{}
	c.current.Store(s)
	return c, nil
}
