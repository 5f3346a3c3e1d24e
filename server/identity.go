package server

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/keelson-dev/keelson/server/certs"
)

// identity is the serving certificate of the server and the credentials of its administrator.
type identity struct {
	certs *certs.Set
	// serving returns the serving certificate. It is called for each connection.
	serving func() (*tls.Certificate, error)
	roots   []byte // what clients verify the server with, PEM
	// kubeconfig is the administrator's kubeconfig. path is its file, empty without a data directory.
	kubeconfig []byte
	path       string
}

// newIdentity reads or creates the certificates. service is the address of the Service kubernetes, url the address
// of the server.
func newIdentity(c *Config, service net.IP, url string) (*identity, error) {
	i := &identity{}
	dir := ""
	if c.DataDir != "" {
		dir, i.path = filepath.Join(c.DataDir, pkiName), KubeconfigFile(c.DataDir)
	}
	ips := []net.IP{net.IPv4(127, 0, 0, 1)}
	if bound := net.ParseIP(c.BindAddress); !bound.IsUnspecified() {
		ips = append(ips, bound)
	}
	certFile, keyFile := c.Serving.files()
	own := certFile == ""
	var err error
	i.certs, err = certs.Ensure(certs.Options{
		Dir: dir, Serving: own, FrontProxy: c.ownFrontProxy(), IPs: append(ips, service),
		Names: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make certificates: %w", err)
	}
	if own {
		err = i.useOwn(&c.Serving)
	} else {
		err = i.readServing(certFile, keyFile)
	}
	i.kubeconfig = certs.Kubeconfig(url, i.roots, i.certs.Admin)
	return i, err
}

// useOwn makes the server's own certificate the serving one.
func (i *identity) useOwn(c *ServingConfig) error {
	pair, err := i.certs.Serving.TLS()
	if err != nil {
		return err
	}
	i.roots, i.serving = i.certs.CA, func() (*tls.Certificate, error) { return &pair, nil }
	return c.write(i.certs.Serving, i.certs.CA)
}

// readServing reads a configured serving certificate. Clients verify it with the certificates in its file.
func (i *identity) readServing(certFile, keyFile string) (err error) {
	if i.roots, err = os.ReadFile(certFile); err != nil {
		return err
	}
	pair, err := certs.NewFilePair(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("cannot use --tls-cert-file with --tls-private-key-file: %w", err)
	}
	i.serving = pair.Certificate
	return nil
}

// writeKubeconfig writes the administrator's kubeconfig to its file, if there is one.
func (i *identity) writeKubeconfig() error {
	if i.path == "" {
		return nil
	}
	if err := certs.WriteFile(i.path, i.kubeconfig, privateFile); err != nil {
		return fmt.Errorf("cannot write %s: %w", i.path, cause(err))
	}
	return nil
}
