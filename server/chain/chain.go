// Package chain is the order in which the filters see a request.
package chain

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/filter/audit"
	"github.com/keelson-dev/keelson/filter/auditid"
	"github.com/keelson-dev/keelson/filter/authenticate"
	"github.com/keelson-dev/keelson/filter/authorize"
	"github.com/keelson-dev/keelson/filter/body"
	"github.com/keelson-dev/keelson/filter/cachecontrol"
	"github.com/keelson-dev/keelson/filter/cors"
	"github.com/keelson-dev/keelson/filter/deadline"
	"github.com/keelson-dev/keelson/filter/fairshare"
	"github.com/keelson-dev/keelson/filter/goaway"
	"github.com/keelson-dev/keelson/filter/hsts"
	"github.com/keelson-dev/keelson/filter/impersonate"
	"github.com/keelson-dev/keelson/filter/inflight"
	"github.com/keelson-dev/keelson/filter/recovery"
	"github.com/keelson-dev/keelson/filter/requestinfo"
	"github.com/keelson-dev/keelson/filter/requestlog"
	"github.com/keelson-dev/keelson/filter/requestmetrics"
	"github.com/keelson-dev/keelson/filter/retryafter"
	"github.com/keelson-dev/keelson/metrics"
)

// Options are what the filters need.
type Options struct {
	Log            *slog.Logger
	Metrics        *metrics.Metrics
	Requests       *metrics.Requests
	Authentication authenticate.Options
	Authorizer     authz.Authorizer
	Limiter        *inflight.Limiter
	RequestTimeout time.Duration
	// Stopping ends long-running requests.
	Stopping context.Context
	// Spread is the time over which they end.
	Spread time.Duration
	// Running counts handlers that go on after their request was cut off.
	Running *atomic.Int64
	// Refusing says that new requests are sent elsewhere.
	Refusing func() bool
	// Audit is nil where nothing is audited.
	Audit *audit.Auditor
	// The filters of CORSAllowedOrigins and HSTSDirectives are left out where these are
	// empty, that of GoawayChance where it is 0.
	CORSAllowedOrigins, HSTSDirectives []string
	GoawayChance                       float64
}

const (
	// answerGrace is how much longer than its time a request may take that is being
	// answered.
	answerGrace = time.Second
	// bodyGrace is how long after the end of long-running requests a body may still
	// be sent: the server stops.
	bodyGrace = 2 * time.Second
)

// New puts the filters before h. A request passes them from top to bottom.
func New(h http.Handler, o Options) http.Handler {
	filters := []func(http.Handler) http.Handler{
		auditid.New(),
		recovery.New(o.Log),
		requestinfo.New(),
		requestmetrics.New(o.Requests),
		o.Audit.Begin,
		requestlog.New(o.Log),
		retryafter.New(o.Refusing),
		hsts.New(o.HSTSDirectives),
		cachecontrol.New(),
		goaway.New(o.GoawayChance, nil),
		deadline.New(deadline.Options{
			Limit: o.RequestTimeout, Grace: answerGrace, BodyGrace: bodyGrace, Spread: o.Spread, Stopping: o.Stopping,
			Running: o.Running, Abandoned: o.Metrics.AbandonedHandler,
		}),
		recovery.New(o.Log), // again: what follows has a goroutine of its own
		cors.New(o.CORSAllowedOrigins),
		authenticate.New(o.Authentication),
		o.Audit.Filter,
		impersonate.New(o.Authorizer, o.Metrics),
		o.Limiter.Filter,
		authorize.New(o.Authorizer, o.Metrics.Authorization),
		body.New(fairshare.NewPool(body.Budget), o.Stopping),
	}
	for i := len(filters) - 1; i >= 0; i-- {
		if filters[i] != nil { // one that is not asked for
			h = filters[i](h)
		}
	}
	return h
}
