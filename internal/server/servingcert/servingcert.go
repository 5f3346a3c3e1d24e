// Package servingcert has the serving certificates of a server: it chooses one for each server name, makes the TLS
// configuration, and writes a copy of the server's own certificate to a directory.
package servingcert

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/reload"
)

var tlsVersions = map[string]uint16{
	"": tls.VersionTLS12, "VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11,
	"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
}

// Validate returns the errors of the TLS versions, cipher suites and additional certificates.
func Validate(c *config.TLS) error {
	var errs []error
	if _, ok := tlsVersions[c.MinVersion]; !ok {
		errs = append(errs, config.Errorf("{Serving.TLS.MinVersion}: unknown tls version %q", c.MinVersion))
	}
	if _, err := cipherSuites(c.CipherSuites); err != nil {
		errs = append(errs, config.Errorf("{Serving.TLS.CipherSuites}: %w", err))
	}
	for _, value := range c.SNICertKeys {
		if _, _, _, err := parseSNI(value); err != nil {
			errs = append(errs, config.Errorf("{Serving.TLS.SNICertKeys}: %w", err))
		}
	}
	return errors.Join(errs...)
}

// cipherSuites returns the numbers of cipher suites.
func cipherSuites(names []string) ([]uint16, error) {
	var out []uint16
	known := append(tls.CipherSuites(), tls.InsecureCipherSuites()...)
	for _, name := range names {
		i := slices.IndexFunc(known, func(s *tls.CipherSuite) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("cipher suite %s not supported or doesn't exist", name)
		}
		out = append(out, known[i].ID)
	}
	return out, nil
}

// parseSNI splits a value of SNICertKeys.
func parseSNI(value string) (certFile, keyFile string, names []string, err error) {
	files, patterns, named := strings.Cut(value, ":")
	if named {
		for name := range strings.SplitSeq(patterns, ",") {
			names = append(names, strings.ToLower(strings.TrimSpace(name)))
		}
	}
	certFile, keyFile, _ = strings.Cut(files, ",")
	if certFile, keyFile = strings.TrimSpace(certFile), strings.TrimSpace(keyFile); certFile == "" || keyFile == "" {
		return "", "", nil, errors.New("expected comma separated certificate and key file paths")
	}
	return certFile, keyFile, names, nil
}

// certificates chooses the certificate of a connection.
type certificates struct {
	standard func() (*tls.Certificate, error)
	pairs    []*sniPair
	names    atomic.Pointer[sniNames]
}

// sniPair is a certificate of SNICertKeys.
type sniPair struct {
	names       []string // in the flag; nil: the names in the certificate
	leaf        *x509.Certificate
	certificate func() (*tls.Certificate, error)
}

// sniNames maps names to pairs. It never changes. A changed certificate may have other names, and leads to new
// sniNames.
type sniNames struct {
	// explicit has the pairs with names in the flag. extracted has the other pairs, by the names in their
	// certificates.
	explicit, extracted map[string]*sniPair
}

// newCertificates reads the certificates of SNICertKeys. If several have the same name, the first one is used.
func newCertificates(
	c *config.Serving, files *reload.Files, standard func() (*tls.Certificate, error),
) (*certificates, error) {
	const flag = "--tls-sni-cert-key"
	s := &certificates{standard: standard}
	var mu sync.Mutex // held while names are collected, because each pair has its own goroutine that follows it
	for _, value := range c.TLS.SNICertKeys {
		certFile, keyFile, names, err := parseSNI(value)
		if err != nil {
			return nil, err
		}
		p := &sniPair{names: names}
		p.certificate, err = files.Pair(reload.Pair{Flag: flag, CertFile: certFile, KeyFile: keyFile, Use: func(c *tls.Certificate) {
			mu.Lock()
			defer mu.Unlock()
			p.leaf = c.Leaf
			s.collectNames()
		}})
		if err != nil {
			return nil, reload.OfField(flag, err)
		}
		mu.Lock()
		s.pairs = append(s.pairs, p)
		s.collectNames()
		mu.Unlock()
	}
	return s, nil
}

// collectNames computes names from the current certificates.
func (c *certificates) collectNames() {
	n := &sniNames{explicit: map[string]*sniPair{}, extracted: map[string]*sniPair{}}
	for _, p := range c.pairs {
		to, names := n.explicit, p.names
		if len(names) == 0 {
			// IP addresses in the certificate are not used: clients send no IP address as the server name.
			to, names = n.extracted, append([]string{p.leaf.Subject.CommonName}, p.leaf.DNSNames...)
		}
		for _, name := range names {
			if to[name] == nil {
				to[name] = p
			}
		}
	}
	c.names.Store(n)
}

// choose implements tls.Config.GetCertificate. It prefers a name without a wildcard to one with a wildcard, and a
// name in the flag to one in a certificate.
func (c *certificates) choose(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if len(c.pairs) > 0 {
		known := c.names.Load()
		name := strings.ToLower(hello.ServerName)
		if name == "" && hello.Conn != nil { // a client that connects to an IP address sends no name
			if local, ok := hello.Conn.LocalAddr().(*net.TCPAddr); ok {
				name = local.IP.String()
			}
		}
		wild := name
		if _, parent, found := strings.Cut(name, "."); found {
			wild = "*." + parent
		}
		for _, name := range []string{name, wild} {
			for _, pairs := range []map[string]*sniPair{known.explicit, known.extracted} {
				if p := pairs[name]; p != nil {
					return p.certificate()
				}
			}
		}
	}
	return c.standard()
}

// TLSConfig returns the configuration of the HTTPS server without its client authorities.
func TLSConfig(
	c *config.Serving, files *reload.Files, standard func() (*tls.Certificate, error),
) (*tls.Config, error) {
	suites, err := cipherSuites(c.TLS.CipherSuites)
	if err != nil {
		return nil, err
	}
	chosen, err := newCertificates(c, files, standard)
	if err != nil {
		return nil, err
	}
	out := &tls.Config{
		MinVersion: tlsVersions[c.TLS.MinVersion], CipherSuites: suites, GetCertificate: chosen.choose,
		ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"},
	}
	for _, curve := range c.TLS.CurvePreferences {
		out.CurvePreferences = append(out.CurvePreferences, tls.CurveID(curve))
	}
	if c.DisableHTTP2 {
		out.NextProtos = []string{"http/1.1"}
	}
	return out, nil
}

// Names of the files in config.TLS.CertDir.
const (
	CertName = "apiserver.crt"
	KeyName  = "apiserver.key"
)

// Files returns the files of a serving certificate that the server did not make in this start, "" if there are
// none. pki is the directory of the server's own certificates. A certificate in CertDir that is a copy of the one
// in pki is the server's own. If an earlier process made a certificate without such a directory, that is used
// until it expires soon, because clients may trust its authority.
func Files(c *config.TLS, pki string) (certFile, keyFile string) {
	if c.CertFile != "" || c.CertDir == "" {
		return c.CertFile, c.KeyFile
	}
	certFile, keyFile = filepath.Join(c.CertDir, CertName), filepath.Join(c.CertDir, KeyName)
	for _, name := range []string{certFile, keyFile} {
		if _, err := os.Stat(name); err != nil {
			return "", ""
		}
	}
	given, _ := filewatch.ReadFile(certFile) // an error is reported when it is used
	if own, err := filewatch.ReadFile(filepath.Join(pki, CertName)); pki != "" && err == nil && bytes.HasPrefix(given, own) {
		return "", ""
	}
	if own := certs.OwnServing(given); own != nil && certs.EndsSoon(own, time.Now()) {
		return "", ""
	}
	return certFile, keyFile
}

// Renew replaces a certificate in CertDir that an earlier process has made and that expires soon. The new one is signed
// by a new authority, because the key of the old authority was not kept. It reports whether it replaced a certificate.
func Renew(c *config.TLS, o certs.Options) (bool, error) {
	if c.CertDir == "" || c.CertFile != "" {
		return false, nil
	}
	given, err := filewatch.ReadFile(filepath.Join(c.CertDir, CertName))
	if err != nil {
		return false, err
	}
	if own := certs.OwnServing(given); own == nil || !certs.EndsSoon(own, time.Now()) {
		return false, nil
	}
	set, err := certs.Ensure(certs.Options{Serving: true, Names: o.Names, IPs: o.IPs})
	if err != nil {
		return false, err
	}
	return true, Write(c, set)
}

// Write writes the server's own certificate to CertDir, with the authority that clients verify it with.
func Write(c *config.TLS, set *certs.Set) error {
	if c.CertDir == "" || c.CertFile != "" {
		return nil
	}
	if err := os.MkdirAll(c.CertDir, 0o755); err != nil {
		return config.Errorf("{Serving.TLS.CertDir}: %w", err)
	}
	for _, file := range []struct {
		name    string
		content []byte
		mode    os.FileMode
	}{
		{CertName, slices.Concat(set.Serving.Cert, set.CA), 0o644},
		{KeyName, set.Serving.Key, datadir.PrivateFile},
	} {
		if err := certs.WriteFile(filepath.Join(c.CertDir, file.name), file.content, file.mode); err != nil {
			return config.Errorf("{Serving.TLS.CertDir}: %w", err)
		}
	}
	return nil
}
