package server

import (
	"context"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/gateway/aggregator"
	"github.com/keelson-dev/keelson/internal/server/identity"
	"github.com/keelson-dev/keelson/internal/server/reload"
)

// newAggregator returns the handler that forwards requests to extension API servers.
func (a *api) newAggregator(ctx context.Context, o *apiOptions) (*aggregator.Aggregator, error) {
	c := &o.config.Network.Aggregation
	options := aggregator.Options{
		Registry: o.registry, Client: a.client, Resolve: resolveServices(o), ByEndpoints: c.ByEndpoints,
		Dial: dialServices(o), RejectRedirects: !c.PassRedirects,
		InFlight: int64(o.config.Requests.MaxInFlight), Log: o.log, Now: o.config.Testing.Clock.Now,
		ReadOnly: o.config.onlyReads(),
	}
	switch {
	case identity.OwnFrontProxy(&o.config.Config):
		options.Certificate = o.frontProxy
	case c.ProxyClientCertFile != "":
		var err error
		options.Certificate, err = o.config.files.Pair(
			reload.Pair{Flag: "--proxy-client-cert-file", CertFile: c.ProxyClientCertFile, KeyFile: c.ProxyClientKeyFile})
		if err != nil {
			return nil, config.Errorf("cannot use {Network.Aggregation.ProxyClientCertFile} with {Network.Aggregation.ProxyClientKeyFile}: %w", err)
		}
	}
	a.proxyCertificate = options.Certificate
	return aggregator.New(ctx, options)
}
