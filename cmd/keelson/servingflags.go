package main

import (
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
)

// httpsFlags are about certificates, protocols and the socket of the HTTPS server.
func httpsFlags(f *pflag.FlagSet, c *config.Serving) {
	f.StringVar(
		&c.TLS.CertFile, "tls-cert-file", "",
		"PEM file of the serving certificate and its chain, instead of the server's own; its changes are followed",
	)
	f.StringVar(&c.TLS.KeyFile, "tls-private-key-file", "", "PEM file of the key of --tls-cert-file")
	f.StringVar(
		&c.TLS.CertDir, "cert-dir", c.TLS.CertDir,
		"directory of apiserver.crt and apiserver.key, the serving certificate if --tls-cert-file is not given; "+
			"the server's own certificate is written there if they are missing",
	)
	f.StringArrayVar(
		&c.TLS.SNICertKeys, "tls-sni-cert-key", nil,
		"a further certificate, as CERT_FILE,KEY_FILE or CERT_FILE,KEY_FILE:NAME,*.NAME: for clients that ask for one of "+
			"the names, or else for a name in the certificate; may be repeated",
	)
	f.StringVar(
		&c.TLS.MinVersion, "tls-min-version", "",
		"lowest version of TLS: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13; VersionTLS12 by default",
	)
	f.StringSliceVar(
		&c.TLS.CipherSuites, "tls-cipher-suites", nil,
		"names of the cipher suites of TLS 1.2 as in Go's package crypto/tls, comma separated; Go's by default",
	)
	f.Int32SliceVar(
		&c.TLS.CurvePreferences, "tls-curve-preferences", nil,
		"numbers of the allowed key exchange mechanisms (CurveID of Go's package crypto/tls), comma separated; "+
			"Go's by default",
	)
	f.IntVar(
		&c.HTTP2MaxStreams, "http2-max-streams-per-connection", 0,
		"how many requests an HTTP/2 connection may have at a time; 0 is half of the requests in flight, at most 100",
	)
	f.BoolVar(&c.DisableHTTP2, "disable-http2-serving", false, "serve HTTP/1.1 only")
	f.BoolVar(&c.PermitAddressSharing, "permit-address-sharing", false, "set SO_REUSEADDR on the listening socket")
	f.BoolVar(
		&c.PermitPortSharing, "permit-port-sharing", false,
		"set SO_REUSEPORT on the listening socket, so that several servers can listen on one address and port",
	)
	f.StringSliceVar(
		&c.TLS.AlternativeNames, "tls-san", nil,
		"further host names and IP addresses of the certificate that the server makes; not a flag of kube-apiserver",
	)
	f.StringVar(
		&c.ExternalHostname, "external-hostname", "",
		"host in the addresses of the server in discovery documents; the advertised address by default",
	)
}
