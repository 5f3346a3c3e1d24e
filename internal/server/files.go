package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
)

// checkFiles returns an error with the field for each file of certificates that cannot be used.
func (c *settings) checkFiles() error {
	var errs []error
	for _, ca := range []struct{ field, path string }{
		{"Authentication.ClientCAFile", c.Authentication.ClientCAFile}, {"Authentication.RequestHeader.ClientCAFile", c.Authentication.RequestHeader.ClientCAFile},
		{"Storage.Etcd.CAFile", c.Storage.Etcd.CAFile}, {"Network.Connections.KubeletCAFile", c.Network.Connections.KubeletCAFile},
		{"Authentication.OIDC.CAFile", c.Authentication.OIDC.CAFile}, {"Network.Peers.CAFile", c.Network.Peers.CAFile},
	} {
		errs = append(errs, checkAuthorities(ca.field, ca.path))
	}
	for _, pair := range []struct{ field, cert, keyField, key string }{
		{"Serving.TLS.CertFile", c.Serving.TLS.CertFile, "Serving.TLS.KeyFile", c.Serving.TLS.KeyFile},
		{"Storage.Etcd.CertFile", c.Storage.Etcd.CertFile, "Storage.Etcd.KeyFile", c.Storage.Etcd.KeyFile},
		{"Network.Connections.KubeletCertFile", c.Network.Connections.KubeletCertFile,
			"Network.Connections.KubeletKeyFile", c.Network.Connections.KubeletKeyFile},
		{"Network.Aggregation.ProxyClientCertFile", c.Network.Aggregation.ProxyClientCertFile,
			"Network.Aggregation.ProxyClientKeyFile", c.Network.Aggregation.ProxyClientKeyFile},
	} {
		if pair.cert == "" || pair.key == "" {
			continue
		}
		cert, certErr := readConfigured(pair.field, pair.cert)
		key, keyErr := readConfigured(pair.keyField, pair.key)
		errs = append(errs, certErr, keyErr)
		if certErr != nil || keyErr != nil {
			continue
		}
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			errs = append(errs, config.Errorf("{%s} with {%s}: %w", pair.field, pair.keyField, err))
		}
	}
	return errors.Join(errs...)
}

// checkAuthorities returns an error if path is set and the file has no certificate authorities.
func checkAuthorities(field, path string) error {
	if path == "" {
		return nil
	}
	content, err := readConfigured(field, path)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(content) {
		err = config.Errorf("{%s}: %s has no certificates", field, path)
	}
	return err
}

// readConfigured reads the file that a field names.
func readConfigured(field, path string) ([]byte, error) {
	content, err := filewatch.ReadFile(path)
	if err != nil {
		return nil, config.Errorf("{%s}: cannot read %s: %w", field, path, datadir.Cause(err))
	}
	return content, nil
}
