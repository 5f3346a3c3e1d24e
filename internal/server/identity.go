package server

import (
	"bytes"
	"cmp"
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

// renewEvery is the interval in which a running server checks whether its own certificates must be renewed.
const renewEvery = time.Hour

// identity is the serving certificate of the server, the credentials of its administrator, and the certificate that it
// shows to extension API servers.
type identity struct {
	identityOptions
	mu      sync.Mutex // held while certificates are made, which may change make.Memory
	make    certs.Options
	current atomic.Pointer[ownCerts]
	// serving returns the serving certificate. It is called for each connection.
	serving func() (*tls.Certificate, error)
	roots   []byte // what clients verify the server with, PEM
	// adminToken is the administrator's token. It is empty if the administrator has a client certificate, and if there is
	// no administrator.
	adminToken string
	// path is the file of the administrator's kubeconfig, empty without a data directory or an administrator.
	path string
}

// identityOptions are the dependencies of identity.
type identityOptions struct {
	config *settings
	// service is the address of the Service kubernetes, advertised the address for clients on other machines.
	service, advertised net.IP
	// url is for clients on this machine, remoteURL for those on others, empty if it is the same or there are none.
	url, remoteURL string
	log            *slog.Logger
}

// ownCerts are the certificates that the server has made.
type ownCerts struct {
	*certs.Set
	serving, frontProxy *tls.Certificate // nil: the server does not make this one
}

// ownClientAuthority reports whether client certificates of the server's own authority are accepted. They are not if the
// operator names other authorities, and if connections have no TLS.
func (c *settings) ownClientAuthority() bool {
	return !c.Authentication.NoOwnCredentials && c.Authentication.ClientCAFile == "" && !c.Serving.InProcess
}

// newIdentity reads or creates the certificates.
func newIdentity(o identityOptions) (*identity, error) {
	i, c := &identity{identityOptions: o}, o.config
	dir := ""
	if c.Storage.DataDir != "" {
		dir = datadir.Certificates(c.Storage.DataDir)
	}
	if !c.Authentication.NoOwnCredentials {
		if c.Storage.DataDir != "" && !c.Serving.InProcess {
			i.path = datadir.Kubeconfig(c.Storage.DataDir)
		}
		if !c.ownClientAuthority() {
			i.adminToken = rand.Text()
		}
	}
	certFile, keyFile := servingcert.Files(&c.Serving.TLS, dir)
	i.make = certs.Options{
		Dir: dir, Memory: c.origin.certificates(),
		Serving: certFile == "" && !c.Serving.InProcess, Admin: c.ownClientAuthority(), FrontProxy: c.ownFrontProxy(),
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
	i.roots = i.current.Load().CA
	i.serving = func() (*tls.Certificate, error) { return i.current.Load().serving, nil }
	if c.Serving.InProcess {
		return i, nil
	}
	return i, servingcert.Write(&c.Serving.TLS, i.current.Load().Set)
}

// names returns the names and addresses of the server's own serving certificate.
func (o *identityOptions) names() (names []string, ips []net.IP) {
	ips = []net.IP{net.IPv4(127, 0, 0, 1), o.service}
	for _, ip := range []net.IP{net.ParseIP(o.config.Serving.Address), o.advertised} {
		if ip != nil && !ip.IsUnspecified() {
			ips = append(ips, ip)
		}
	}
	names = []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	for _, name := range append([]string{o.config.Serving.ExternalHostname}, o.config.Serving.TLS.AlternativeNames...) {
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
func (i *identity) ensure() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	set, err := certs.Ensure(i.make)
	if err != nil {
		return err
	}
	if set.NewAuthority {
		i.log.Warn("the certificate authority was missing and a new one has been made; kubeconfigs and client certificates of the "+
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

// pairs returns the certificates of a server without a data directory, by name.
func (i *identity) pairs() map[string]certs.Pair {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.make.Memory)
}

// run renews the certificates until ctx ends.
func (i *identity) run(ctx context.Context) {
	ticker := time.NewTicker(cmp.Or(i.config.fileReload, renewEvery))
	defer ticker.Stop()
	for {
		wake := i.config.files.Wake.Wait()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-wake:
		}
		if err := i.renew(); err != nil {
			i.log.Error("the server's own certificates cannot be renewed; those before stay in use", "error", err)
		}
	}
}

// renew makes the certificates that have to be renewed, and writes the files that contain them.
func (i *identity) renew() error {
	if !i.make.Serving && !i.config.Serving.InProcess {
		if renewed, err := servingcert.Renew(&i.config.Serving.TLS, i.make); err != nil {
			return err
		} else if renewed {
			i.log.Info("the serving certificate was renewed, with a new authority", "directory", i.config.Serving.TLS.CertDir)
		}
	}
	before := i.current.Load()
	if err := i.ensure(); err != nil {
		return err
	}
	now := i.current.Load()
	if !bytes.Equal(before.Serving.Cert, now.Serving.Cert) {
		i.log.Info("the serving certificate was renewed", "expires", now.serving.Leaf.NotAfter)
		if err := servingcert.Write(&i.config.Serving.TLS, now.Set); err != nil {
			return err
		}
	}
	if !bytes.Equal(before.FrontProxy.Cert, now.FrontProxy.Cert) {
		i.log.Info("the certificate for extension API servers was renewed", "expires", now.frontProxy.Leaf.NotAfter)
	}
	if bytes.Equal(before.Admin.Cert, now.Admin.Cert) {
		return nil
	}
	i.log.Info("the administrator's certificate was renewed", "kubeconfig", i.path)
	return i.writeKubeconfig()
}

// notExpired is a probe that fails when the serving certificate that the server has created has expired: a restart, or
// the runner that calls renew, replaces it. A certificate that the operator provides is not checked.
func (i *identity) notExpired(context.Context) error {
	own := i.current.Load()
	if own == nil || own.serving == nil || own.serving.Leaf == nil || time.Now().Before(own.serving.Leaf.NotAfter) {
		return nil
	}
	return errors.New("the serving certificate has expired")
}

// servingExpiry returns a collector of the time at which the serving certificate expires, whoever made it. It shows
// nothing for a server without one.
func servingExpiry(serving func() (*tls.Certificate, error)) prometheus.Collector {
	expires := prometheus.NewDesc("keelson_serving_certificate_expiration_timestamp_seconds", "Time at which the serving "+
		"certificate expires, in seconds since the epoch.", nil, nil)
	return metrics.OnDemand(func(gauge func(*prometheus.Desc, int64, ...string)) {
		if c, err := serving(); err == nil && c != nil && c.Leaf != nil {
			gauge(expires, c.Leaf.NotAfter.Unix())
		}
	}, expires)
}

// frontProxy returns the certificate that the server made to show to extension API servers.
func (i *identity) frontProxy() (*tls.Certificate, error) { return i.current.Load().frontProxy, nil }

// clientAuthority returns the server's own authority if it accepts client certificates of it, in PEM.
func (i *identity) clientAuthority() []byte {
	if !i.config.ownClientAuthority() {
		return nil
	}
	return i.current.Load().CA
}

// readServing reads a configured serving certificate. Clients verify it with the certificates in its file.
func (i *identity) readServing(certFile, keyFile string) (err error) {
	if i.roots, err = filewatch.ReadFile(certFile); err != nil {
		return config.Errorf("{Serving.TLS.CertFile}: cannot read %s: %w", certFile, datadir.Cause(err))
	}
	flag := "--tls-cert-file"
	if i.config.Serving.TLS.CertFile == "" {
		flag = "--cert-dir"
	}
	if i.serving, err = i.config.files.Pair(reload.Pair{Flag: flag, CertFile: certFile, KeyFile: keyFile}); err != nil {
		return config.Errorf("cannot use {Serving.TLS.CertFile} with {Serving.TLS.KeyFile}: %w", err)
	}
	return nil
}

// serverName returns the name by which clients on this machine verify a serving certificate of the operator. It is empty if
// the certificate is valid for the address of the server, and if it has no name.
func (i *identity) serverName() string {
	c, err := i.serving()
	if err != nil || c.Leaf == nil {
		return ""
	}
	address, err := url.Parse(i.url)
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

// kubeconfig returns the administrator's kubeconfig, nil if there is no administrator or no socket.
func (i *identity) kubeconfig() []byte {
	if i.config.Authentication.NoOwnCredentials || i.config.Serving.InProcess {
		return nil
	}
	k := certs.Kubeconfig{
		Server: i.url, Remote: i.remoteURL, ServerName: i.serverName(), CA: i.roots, User: certs.AdminUser,
		Token: i.adminToken, Certificate: i.current.Load().Admin,
	}
	return k.Bytes()
}

// writeKubeconfig writes the administrator's kubeconfig to its file, if there is one.
func (i *identity) writeKubeconfig() error {
	if i.path == "" {
		return nil
	}
	if err := certs.WriteFile(i.path, i.kubeconfig(), datadir.PrivateFile); err != nil {
		return fmt.Errorf("cannot write %s: %w", i.path, datadir.Cause(err))
	}
	return nil
}
