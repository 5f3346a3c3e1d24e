package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/keelson-dev/keelson/internal/gateway/aggregator"
	"github.com/keelson-dev/keelson/internal/server/certs"
)

// AggregationConfig configures how requests are forwarded to extension API servers.
type AggregationConfig struct {
	// ByEndpoints connects to the endpoints of Services whose programs the server calls, such as extension API servers and
	// webhooks, rather than to their cluster IPs.
	ByEndpoints bool
	// ProxyClientCertFile and ProxyClientKeyFile are the certificate by which extension API servers recognize this one.
	// Both files may be replaced while the server runs. If they are empty and nothing says whom the server trusts
	// (ClientCAFile, RequestHeader), the server makes a certificate and its authority.
	ProxyClientCertFile, ProxyClientKeyFile string
	// RejectRedirects answers 502 to redirects of extension API servers instead of sending them to the client.
	RejectRedirects bool
}

// validate returns what is wrong with the configuration.
func (c *AggregationConfig) validate() error {
	if (c.ProxyClientCertFile == "") != (c.ProxyClientKeyFile == "") {
		return errors.New("--proxy-client-cert-file and --proxy-client-key-file must be given together")
	}
	return nil
}

// ownFrontProxy returns whether the server makes the certificates by which extension API servers recognize it. It does not if
// the operator says whom the server trusts, or which certificate it shows.
func (c *Config) ownFrontProxy() bool {
	return !c.NoOwnCredentials && c.ClientCAFile == "" && c.Authentication.RequestHeader.ClientCAFile == "" &&
		c.Aggregation.ProxyClientCertFile == ""
}

// ownRequestHeaders are the headers in which the server names users to extension API servers, and the certificate that it
// shows with them.
func ownRequestHeaders() RequestHeaderConfig {
	return RequestHeaderConfig{
		AllowedNames:    []string{certs.FrontProxyName},
		UsernameHeaders: []string{"X-Remote-User"}, UIDHeaders: []string{"X-Remote-Uid"},
		GroupHeaders: []string{"X-Remote-Group"}, ExtraHeadersPrefixes: []string{"X-Remote-Extra-"},
	}
}

// newAggregator returns what forwards requests to extension API servers.
func (a *api) newAggregator(ctx context.Context, o *apiOptions) (*aggregator.Aggregator, error) {
	c := &o.config.Aggregation
	options := aggregator.Options{
		Registry: o.registry, Client: a.client, Resolve: resolveServices(o), ByEndpoints: c.ByEndpoints,
		Dial: dialServices(o), RejectRedirects: c.RejectRedirects,
		InFlight: int64(o.config.MaxRequestsInFlight), Log: o.log, Now: o.config.Clock.Now,
	}
	switch {
	case o.config.ownFrontProxy():
		options.Certificate = o.frontProxy
	case c.ProxyClientCertFile != "":
		var err error
		options.Certificate, err = o.config.files.pair(
			pair{"--proxy-client-cert-file", c.ProxyClientCertFile, c.ProxyClientKeyFile, nil})
		if err != nil {
			return nil, fmt.Errorf("cannot use --proxy-client-cert-file with --proxy-client-key-file: %w", err)
		}
	}
	a.proxyCertificate = options.Certificate
	return aggregator.New(ctx, options)
}
