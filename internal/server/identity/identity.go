// Package identity has the certificates and credentials of a server: its serving certificate, the credentials of
// its administrator, and the certificate for extension API servers.
package identity

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/reload"
	"github.com/keelson-dev/keelson/internal/server/servingcert"
)

// Identity is the serving certificate of the server, the credentials of its administrator, and the certificate that it
// shows to extension API servers. Its methods may be called concurrently.
type Identity struct {
	Options
	// Serving returns the serving certificate. It is called for each connection.
	Serving func() (*tls.Certificate, error)
	// Roots are the certificates, as PEM, with which clients verify the server.
	Roots []byte
	// AdminToken is the administrator's token. It is empty if the administrator has a client certificate, and if there is
	// no administrator.
	AdminToken string
	// Path is the file of the administrator's kubeconfig, empty without a data directory or an administrator.
	Path string

	mu      sync.Mutex // held while certificates are made; guards make.Memory
	make    certs.Options
	current atomic.Pointer[ownCerts]
}

// Options are the dependencies of Identity.
type Options struct {
	Config *config.Config
	Files  *reload.Files
	// Certificates has the certificates of a server without a data directory, by name. New ones are added to it.
	Certificates map[string]certs.Pair
	// RenewEvery is the interval in which Run looks whether certificates must be renewed.
	RenewEvery time.Duration
	// Service is the address of the Service kubernetes, Advertised the address for clients on other machines.
	Service, Advertised net.IP
	// URL is for clients on this machine. RemoteURL is for clients on other machines; it is empty if it is URL or
	// there are none.
	URL, RemoteURL string
	Log            *slog.Logger
}

// ownCerts are the certificates that the server has made.
type ownCerts struct {
	*certs.Set
	serving, frontProxy *tls.Certificate // nil: the server does not make this one
}

// OwnClientAuthority reports whether client certificates of the server's own authority are accepted. They are not
// if the server has no credentials of its own, if the operator configures other authorities, or if connections
// have no TLS.
func OwnClientAuthority(c *config.Config) bool {
	return !c.Authentication.NoOwnCredentials && c.Authentication.ClientCAFile == "" && !c.Serving.InProcess
}

// OwnFrontProxy reports whether the server creates the certificates by which extension API servers authenticate
// it. It does not if the operator configures a client authority or the client certificate.
func OwnFrontProxy(c *config.Config) bool {
	return !c.Authentication.NoOwnCredentials && c.Authentication.ClientCAFile == "" && c.Authentication.RequestHeader.ClientCAFile == "" &&
		c.Network.Aggregation.ProxyClientCertFile == ""
}

// New reads or creates the certificates.
func New(o Options) (*Identity, error) {
	i, c := &Identity{Options: o}, o.Config
	dir := ""
	if c.Storage.DataDir != "" {
		dir = datadir.Certificates(c.Storage.DataDir)
	}
	if !c.Authentication.NoOwnCredentials {
		if c.Storage.DataDir != "" && !c.Serving.InProcess {
			i.Path = datadir.Kubeconfig(c.Storage.DataDir)
		}
		if !OwnClientAuthority(c) {
			i.AdminToken = rand.Text()
		}
	}
	certFile, keyFile := servingcert.Files(&c.Serving.TLS, dir)
	i.make = certs.Options{
		Dir: dir, Memory: o.Certificates,
		Serving: certFile == "" && !c.Serving.InProcess, Admin: OwnClientAuthority(c), FrontProxy: OwnFrontProxy(c),
	}
	if c.Authentication.NoOwnCredentials {
		i.make.Dir = "" // the serving certificate is kept in Serving.CertDir
	}
	i.make.Names, i.make.IPs = o.names()
	if err := i.ensure(); err != nil {
		return nil, fmt.Errorf("cannot make certificates: %w", err)
	}
	if certFile != "" && !c.Serving.InProcess {
		return i, i.readServing(certFile, keyFile)
	}
	i.Roots = i.current.Load().CA
	i.Serving = func() (*tls.Certificate, error) { return i.current.Load().serving, nil }
	if c.Serving.InProcess {
		return i, nil
	}
	return i, servingcert.Write(&c.Serving.TLS, i.current.Load().Set)
}

// names returns the names and addresses of the server's own serving certificate.
func (o *Options) names() (names []string, ips []net.IP) {
	ips = []net.IP{net.IPv4(127, 0, 0, 1), o.Service}
	for _, ip := range []net.IP{net.ParseIP(o.Config.Serving.Address), o.Advertised} {
		if ip != nil && !ip.IsUnspecified() {
			ips = append(ips, ip)
		}
	}
	names = []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	for _, name := range append([]string{o.Config.Serving.ExternalHostname}, o.Config.Serving.TLS.AlternativeNames...) {
		if ip := net.ParseIP(name); ip != nil {
			ips = append(ips, ip)
		} else if name != "" {
			names = append(names, name)
		}
	}
	slices.SortFunc(ips, func(a, b net.IP) int { return bytes.Compare(a.To16(), b.To16()) })
	ips = slices.CompactFunc(ips, net.IP.Equal)
	slices.Sort(names)
	return slices.Compact(names), ips
}

// ensure makes the certificates that are missing or have to be renewed.
func (i *Identity) ensure() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	set, err := certs.Ensure(i.make)
	if err != nil {
		return err
	}
	if set.NewAuthority {
		i.Log.Warn("the certificate authority was missing and a new one has been made; kubeconfigs and client certificates of the "+
			"one before are no longer accepted", "directory", i.make.Dir)
	}
	made := &ownCerts{Set: set}
	for _, c := range []struct {
		pair   certs.Pair
		parsed **tls.Certificate
	}{{set.Serving, &made.serving}, {set.FrontProxy, &made.frontProxy}} {
		if c.pair.Cert == nil {
			continue
		}
		parsed, err := c.pair.TLS()
		if err != nil {
			return err
		}
		*c.parsed = &parsed
	}
	i.current.Store(made)
	return nil
}

// Current returns the certificates that the server has made. They must not be changed.
func (i *Identity) Current() *certs.Set { return i.current.Load().Set }

// Pairs returns the certificates of a server without a data directory, by name.
func (i *Identity) Pairs() map[string]certs.Pair {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.make.Memory)
}

// Run renews the certificates until ctx ends.
func (i *Identity) Run(ctx context.Context) {
	ticker := time.NewTicker(i.RenewEvery)
	defer ticker.Stop()
	for {
		wake := i.Files.Wake.Wait()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-wake:
		}
		if err := i.Renew(); err != nil {
			i.Log.Error("the server's own certificates cannot be renewed; those before stay in use", "error", err)
		}
	}
}

// Renew makes the certificates that have to be renewed, and writes the files that contain them.
func (i *Identity) Renew() error {
	if !i.make.Serving && !i.Config.Serving.InProcess {
		if renewed, err := servingcert.Renew(&i.Config.Serving.TLS, i.make); err != nil {
			return err
		} else if renewed {
			i.Log.Info("the serving certificate was renewed, with a new authority", "directory", i.Config.Serving.TLS.CertDir)
		}
	}
	before := i.current.Load()
	if err := i.ensure(); err != nil {
		return err
	}
	now := i.current.Load()
	if !bytes.Equal(before.Serving.Cert, now.Serving.Cert) {
		i.Log.Info("the serving certificate was renewed", "expires", now.serving.Leaf.NotAfter)
		if err := servingcert.Write(&i.Config.Serving.TLS, now.Set); err != nil {
			return err
		}
	}
	if !bytes.Equal(before.FrontProxy.Cert, now.FrontProxy.Cert) {
		i.Log.Info("the certificate for extension API servers was renewed", "expires", now.frontProxy.Leaf.NotAfter)
	}
	if bytes.Equal(before.Admin.Cert, now.Admin.Cert) {
		return nil
	}
	i.Log.Info("the administrator's certificate was renewed", "kubeconfig", i.Path)
	return i.WriteKubeconfig()
}

// NotExpired is a probe that fails after the serving certificate that the server has made has expired. A restart
// replaces the certificate, or the next Renew. A certificate of the operator is not checked.
func (i *Identity) NotExpired(context.Context) error {
	own := i.current.Load()
	if own == nil || own.serving == nil || own.serving.Leaf == nil || time.Now().Before(own.serving.Leaf.NotAfter) {
		return nil
	}
	return errors.New("the serving certificate has expired")
}

// Expiry returns a collector of the time at which the serving certificate expires, also for a certificate of the
// operator. Without a certificate it collects nothing.
func (i *Identity) Expiry() prometheus.Collector {
	expires := prometheus.NewDesc("keelson_serving_certificate_expiration_timestamp_seconds", "Time at which the serving "+
		"certificate expires, in seconds since the epoch.", nil, nil)
	return metrics.OnDemand(func(gauge func(*prometheus.Desc, int64, ...string)) {
		if c, err := i.Serving(); err == nil && c != nil && c.Leaf != nil {
			gauge(expires, c.Leaf.NotAfter.Unix())
		}
	}, expires)
}

// FrontProxy returns the certificate that the server made to show to extension API servers.
func (i *Identity) FrontProxy() (*tls.Certificate, error) { return i.current.Load().frontProxy, nil }

// ClientAuthority returns the server's own authority if it accepts client certificates of it, in PEM.
func (i *Identity) ClientAuthority() []byte {
	if !OwnClientAuthority(i.Config) {
		return nil
	}
	return i.current.Load().CA
}

// readServing reads a configured serving certificate. Clients verify it with the certificates in its file.
func (i *Identity) readServing(certFile, keyFile string) (err error) {
	if i.Roots, err = filewatch.ReadFile(certFile); err != nil {
		return config.Errorf("{Serving.TLS.CertFile}: cannot read %s: %w", certFile, datadir.Cause(err))
	}
	flag := "--tls-cert-file"
	if i.Config.Serving.TLS.CertFile == "" {
		flag = "--cert-dir"
	}
	if i.Serving, err = i.Files.Pair(reload.Pair{Flag: flag, CertFile: certFile, KeyFile: keyFile}); err != nil {
		return config.Errorf("cannot use {Serving.TLS.CertFile} with {Serving.TLS.KeyFile}: %w", err)
	}
	return nil
}

// serverName returns the name by which clients on this machine verify a serving certificate of the operator. It is empty if
// the certificate is valid for the address of the server, and if it has no name.
func (i *Identity) serverName() string {
	c, err := i.Serving()
	if err != nil || c.Leaf == nil {
		return ""
	}
	address, err := url.Parse(i.URL)
	if err != nil || c.Leaf.VerifyHostname(address.Hostname()) == nil {
		return ""
	}
	for _, name := range c.Leaf.DNSNames {
		if !strings.Contains(name, "*") {
			return name
		}
	}
	return ""
}

// Kubeconfig returns the administrator's kubeconfig, nil if there is no administrator or no socket.
func (i *Identity) Kubeconfig() []byte {
	if i.Config.Authentication.NoOwnCredentials || i.Config.Serving.InProcess {
		return nil
	}
	k := certs.Kubeconfig{
		Server: i.URL, Remote: i.RemoteURL, ServerName: i.serverName(), CA: i.Roots, User: certs.AdminUser,
		Token: i.AdminToken, Certificate: i.current.Load().Admin,
	}
	return k.Bytes()
}

// WriteKubeconfig writes the administrator's kubeconfig to its file, if there is one.
func (i *Identity) WriteKubeconfig() error {
	if i.Path == "" {
		return nil
	}
	if err := certs.WriteFile(i.Path, i.Kubeconfig(), datadir.PrivateFile); err != nil {
		return fmt.Errorf("cannot write %s: %w", i.Path, datadir.Cause(err))
	}
	return nil
}
