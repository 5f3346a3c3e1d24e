package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/keelson-dev/keelson/internal/server/filewatch"
)

// checkFiles returns an error with the flag for each file of certificates that cannot be used.
func (c *Config) checkFiles() error {
	var errs []error
	for _, ca := range []struct{ flag, path string }{
		{"--client-ca-file", c.ClientCAFile}, {"--requestheader-client-ca-file", c.Authentication.RequestHeader.ClientCAFile},
		{"--etcd-cafile", c.Etcd.CAFile}, {"--kubelet-certificate-authority", c.Connections.KubeletCertificateAuthority},
		{"--oidc-ca-file", c.Authentication.OIDC.CAFile}, {"--peer-ca-file", c.Peers.CAFile},
	} {
		errs = append(errs, checkAuthorities(ca.flag, ca.path))
	}
	for _, pair := range []struct{ flag, cert, keyFlag, key string }{
		{"--tls-cert-file", c.Serving.TLSCertFile, "--tls-private-key-file", c.Serving.TLSPrivateKeyFile},
		{"--etcd-certfile", c.Etcd.CertFile, "--etcd-keyfile", c.Etcd.KeyFile},
		{"--kubelet-client-certificate", c.Connections.KubeletClientCertificate,
			"--kubelet-client-key", c.Connections.KubeletClientKey},
		{"--proxy-client-cert-file", c.Aggregation.ProxyClientCertFile,
			"--proxy-client-key-file", c.Aggregation.ProxyClientKeyFile},
	} {
		if pair.cert == "" || pair.key == "" {
			continue
		}
		cert, certErr := readFlag(pair.flag, pair.cert)
		key, keyErr := readFlag(pair.keyFlag, pair.key)
		errs = append(errs, certErr, keyErr)
		if certErr != nil || keyErr != nil {
			continue
		}
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			errs = append(errs, fmt.Errorf("%s with %s: %w", pair.flag, pair.keyFlag, err))
		}
	}
	return errors.Join(errs...)
}

// checkAuthorities returns an error if a file of authorities is named and has none.
func checkAuthorities(flag, path string) error {
	if path == "" {
		return nil
	}
	content, err := readFlag(flag, path)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(content) {
		err = fmt.Errorf("%s: %s has no certificates", flag, path)
	}
	return err
}

// readFlag reads the file that a flag names.
func readFlag(flag, path string) ([]byte, error) {
	content, err := filewatch.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot read %s: %w", flag, path, cause(err))
	}
	return content, nil
}
