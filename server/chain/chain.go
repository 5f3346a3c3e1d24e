// Package chain is the order in which the filters see a request.
package chain

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/filter/auditid"
	"github.com/keelson-dev/keelson/filter/authenticate"
	"github.com/keelson-dev/keelson/filter/authorize"
	"github.com/keelson-dev/keelson/filter/cachecontrol"
	"github.com/keelson-dev/keelson/filter/deadline"
	"github.com/keelson-dev/keelson/filter/impersonate"
	"github.com/keelson-dev/keelson/filter/inflight"
	"github.com/keelson-dev/keelson/filter/info"
	"github.com/keelson-dev/keelson/filter/measure"
	"github.com/keelson-dev/keelson/filter/recovery"
	"github.com/keelson-dev/keelson/metrics"
)

// Options are what the filters need.
type Options struct {
	Log            *slog.Logger
	Metrics        *metrics.Metrics
	Authentication authenticate.Options
	Authorizer     authz.Authorizer
	Limiter        *inflight.Limiter
	RequestTimeout time.Duration
	// Stopping ends long-running requests.
	Stopping context.Context
}

// New puts the filters before h. A request passes them from top to bottom.
func New(h http.Handler, o Options) http.Handler {
	filters := []func(http.Handler) http.Handler{
		recovery.New(o.Log),
		info.New(),
		measure.New(o.Metrics),
		auditid.New(),
		cachecontrol.New(),
		deadline.New(o.RequestTimeout, o.Stopping),
		authenticate.New(o.Authentication),
		impersonate.New(o.Authorizer, o.Metrics),
		o.Limiter.Filter,
		authorize.New(o.Authorizer, o.Metrics.Authorization),
	}
	for i := len(filters) - 1; i >= 0; i-- {
		h = filters[i](h)
	}
	return h
}
