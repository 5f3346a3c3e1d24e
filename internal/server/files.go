package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/offsite"
)

// checkFiles returns an error for each file of certificates that cannot be used. The error names the configuration
// field.
func (s *settings) checkFiles() error {
	_, err := offsite.ReadRecipients(s.Storage.Backup.RecipientsFile)
	errs := []error{err}
	for _, ca := range []struct{ field, path string }{
		{"Authentication.ClientCAFile", s.Authentication.ClientCAFile},
		{"Authentication.RequestHeader.ClientCAFile", s.Authentication.RequestHeader.ClientCAFile},
		{"Storage.Etcd.CAFile", s.Storage.Etcd.CAFile}, {"Network.Connections.KubeletCAFile", s.Network.Connections.KubeletCAFile},
		{"Authentication.OIDC.CAFile", s.Authentication.OIDC.CAFile}, {"Network.Peers.CAFile", s.Network.Peers.CAFile},
		{"Storage.Backup.S3.CAFile", s.Storage.Backup.S3.CAFile},
	} {
		errs = append(errs, checkAuthorities(ca.field, ca.path))
	}
	for _, pair := range []struct{ field, cert, keyField, key string }{
		{"Serving.TLS.CertFile", s.Serving.TLS.CertFile, "Serving.TLS.KeyFile", s.Serving.TLS.KeyFile},
		{"Storage.Etcd.CertFile", s.Storage.Etcd.CertFile, "Storage.Etcd.KeyFile", s.Storage.Etcd.KeyFile},
		{"Network.Connections.KubeletCertFile", s.Network.Connections.KubeletCertFile,
			"Network.Connections.KubeletKeyFile", s.Network.Connections.KubeletKeyFile},
		{"Network.Aggregation.ProxyClientCertFile", s.Network.Aggregation.ProxyClientCertFile,
			"Network.Aggregation.ProxyClientKeyFile", s.Network.Aggregation.ProxyClientKeyFile},
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

// readConfigured reads the file whose path is the value of the configuration field.
func readConfigured(field, path string) ([]byte, error) {
	content, err := filewatch.ReadFile(path)
	if err != nil {
		return nil, config.Errorf("{%s}: cannot read %s: %w", field, path, datadir.Cause(err))
	}
	return content, nil
}
