package config

import "time"

// Serving configures the HTTPS server: its address, its protocols and how it stops.
type Serving struct {
	// Address is the IP address to listen on. The default is 127.0.0.1 (--bind-address).
	Address string `flag:"bind-address"`
	// Port is the port to listen on. The default is 6443; FreePort picks a free one (--secure-port).
	Port int `flag:"secure-port"`
	// InProcess is a server without a socket: Address, Port and TLS are not used, and clients in the same program connect
	// with the configurations of Server.RESTConfig and Server.RESTConfigFor. Client certificates are not accepted; the
	// administrator has a token. Nothing outside of the program can reach the server.
	InProcess bool
	// TLS configures the certificates of the server, and the versions and cipher suites.
	TLS TLS
	// HTTP2MaxStreams is how many requests an HTTP/2 connection may have at a time. The default is half of the smaller limit
	// of requests in flight, at most 100 (--http2-max-streams-per-connection).
	HTTP2MaxStreams int `flag:"http2-max-streams-per-connection"`
	// DisableHTTP2 serves HTTP/1.1 only (--disable-http2-serving).
	DisableHTTP2 bool `flag:"disable-http2-serving"`
	// PermitAddressSharing sets SO_REUSEADDR on the socket. It works on Linux only (--permit-address-sharing).
	PermitAddressSharing bool `flag:"permit-address-sharing"`
	// PermitPortSharing sets SO_REUSEPORT on the socket, so that several servers can listen on one address and port. It works
	// on Linux only (--permit-port-sharing).
	PermitPortSharing bool `flag:"permit-port-sharing"`
	// ExternalHostname is the host in URLs of the server in discovery documents. The default is the address that the server
	// advertises (--external-hostname).
	ExternalHostname string `flag:"external-hostname"`
	// Console serves the web console at /console/ to everybody who can connect. It contains no objects itself: its
	// page requests them with the user's credentials. It is not served with Authentication.NoAnonymous. `keelson
	// serve` switches it on; the default of this field is false (--console).
	Console bool `flag:"console"`
	// LivezGracePeriod is the time after the start in which /livez does not fail, because the server may still be
	// starting. The default is 0 (--livez-grace-period).
	LivezGracePeriod time.Duration `flag:"livez-grace-period"`
	// Shutdown configures how the server stops.
	Shutdown Shutdown
}

// TLS configures the certificates of the server, and the versions and cipher suites.
type TLS struct {
	// CertFile is a PEM file of a serving certificate with its chain, which is used instead of the server's own. It may be
	// replaced while the server runs (--tls-cert-file).
	CertFile string `flag:"tls-cert-file"`
	// KeyFile is a PEM file of the key of CertFile (--tls-private-key-file).
	KeyFile string `flag:"tls-private-key-file"`
	// CertDir is a directory with the files apiserver.crt and apiserver.key, which are used if CertFile is empty.
	// If they are missing, the server writes its own certificate there. If CertDir is empty, that certificate is
	// only in the data directory (--cert-dir).
	CertDir string `flag:"cert-dir"`
	// SNICertKeys are further certificates, each as "cert file,key file" or "cert file,key file:name,*.name". A
	// client gets one if it asks for one of the names, or without names for a name in the certificate
	// (--tls-sni-cert-key).
	SNICertKeys []string `flag:"tls-sni-cert-key"`
	// MinVersion is VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13. The default is VersionTLS12
	// (--tls-min-version).
	MinVersion string `flag:"tls-min-version"`
	// CipherSuites are the names of cipher suites of TLS 1.2. The default are those of Go (--tls-cipher-suites).
	CipherSuites []string `flag:"tls-cipher-suites"`
	// CurvePreferences are the numbers of key exchange mechanisms (crypto/tls.CurveID). The default are those of Go
	// (--tls-curve-preferences).
	CurvePreferences []int32 `flag:"tls-curve-preferences"`
	// AlternativeNames are further host names and IP addresses of the certificate that the server makes (--tls-san).
	AlternativeNames []string `flag:"tls-san"`
}

// Shutdown configures how the server stops.
type Shutdown struct {
	// Delay is how long the server goes on serving after it was told to stop, while /readyz already fails. The default is 0
	// (--shutdown-delay-duration).
	Delay time.Duration `flag:"shutdown-delay-duration"`
	// SendRetryAfter keeps the server listening while it waits for requests in flight; new requests get 429
	// (--shutdown-send-retry-after).
	SendRetryAfter bool `flag:"shutdown-send-retry-after"`
	// WatchGrace is the time over which the ends of watches are spread. With 0, the default, all end at the same
	// time (--shutdown-watch-termination-grace-period).
	WatchGrace time.Duration `flag:"shutdown-watch-termination-grace-period"`
}
