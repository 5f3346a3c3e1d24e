// Package chain is the list of the HTTP filters in the order in which a request passes them.
package chain

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/gateway/filter/audit"
	"github.com/keelson-dev/keelson/internal/gateway/filter/auditid"
	"github.com/keelson-dev/keelson/internal/gateway/filter/authenticate"
	"github.com/keelson-dev/keelson/internal/gateway/filter/authorize"
	"github.com/keelson-dev/keelson/internal/gateway/filter/body"
	"github.com/keelson-dev/keelson/internal/gateway/filter/cachecontrol"
	"github.com/keelson-dev/keelson/internal/gateway/filter/cors"
	"github.com/keelson-dev/keelson/internal/gateway/filter/deadline"
	"github.com/keelson-dev/keelson/internal/gateway/filter/exclusive"
	"github.com/keelson-dev/keelson/internal/gateway/filter/forward"
	"github.com/keelson-dev/keelson/internal/gateway/filter/goaway"
	"github.com/keelson-dev/keelson/internal/gateway/filter/hsts"
	"github.com/keelson-dev/keelson/internal/gateway/filter/impersonate"
	"github.com/keelson-dev/keelson/internal/gateway/filter/recovery"
	"github.com/keelson-dev/keelson/internal/gateway/filter/requestinfo"
	"github.com/keelson-dev/keelson/internal/gateway/filter/requestlog"
	"github.com/keelson-dev/keelson/internal/gateway/filter/requestmetrics"
	"github.com/keelson-dev/keelson/internal/gateway/filter/retryafter"
	"github.com/keelson-dev/keelson/internal/gateway/filter/standby"
	tracingfilter "github.com/keelson-dev/keelson/internal/gateway/filter/tracing"
	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/tracing"
)

// Options are the dependencies of the filters.
type Options struct {
	Log            *slog.Logger
	Metrics        *metrics.Metrics // the filters register their metrics here
	Requests       *requestmetrics.Requests
	Authentication authenticate.Options
	Authorization  Authorization
	// Limit limits the requests in flight; it is the filter of package fairness or of package inflight.
	Limit          func(http.Handler) http.Handler
	RequestTimeout time.Duration
	// Stop configures what happens when the server stops.
	Stop Stop
	// Forwarder returns the handler that forwards a request to another server, nil if this server handles it.
	Forwarder func(*http.Request) http.Handler
	// Audit is nil if auditing is not configured.
	Audit *audit.Auditor
	// The filter of GoawayChance is omitted if it is 0.
	GoawayChance float64
	Browsers     Browsers
	Copy         Copy
	Testing      Testing
	// Tracer is nil if tracing is not configured.
	Tracer *tracing.Tracer
}

// Authorization decides what a user may do.
type Authorization struct {
	Authorizer               authz.Authorizer
	ConstrainedImpersonation bool // the feature gate
}

// Browsers are the options of the filters that are for browsers.
type Browsers struct {
	HSTSDirectives     []string // no filter if empty
	CORSAllowedOrigins []string // no filter if empty
	// Unauthenticated is the filter of package unauthenticated; nil if no page is open.
	Unauthenticated func(http.Handler) http.Handler
}

// Copy says what a server may answer that is one of several with the same data (docs/availability.md).
type Copy struct {
	// Exclusive reports whether no other server can have taken over the data of this one; nil if none may. If it returns false, nothing is
	// answered.
	Exclusive func() bool
	// Standby returns how old answers are if the server follows another one; nil if it does not.
	Standby func() standby.State
}

// Testing are the filters of package traffic, for tests of clients. They are nil otherwise.
type Testing struct {
	Record, Disturb func(http.Handler) http.Handler
}

// Stop configures what happens to requests when the server stops.
type Stop struct {
	// Begun ends when the server stops; then long-running requests are ended.
	Begun context.Context
	// Spread is the time over which the ends of long-running requests are distributed.
	Spread time.Duration
	// Running counts the handlers that still run although their request has timed out.
	Running *atomic.Int64
	// LongRunning is called when a long-running request begins. The function that it returns is called when the
	// request ends.
	LongRunning func() (ended func())
	// Refusing reports whether new requests are answered 429, because the server stops.
	Refusing func() bool
}

const (
	// answerGrace is how much longer than its timeout a request may take if its response has begun.
	answerGrace = time.Second
	// bodyGrace is the time for sending a request body after the server began to stop.
	bodyGrace = 2 * time.Second
)

// New returns h behind the filters. A request passes them from top to bottom.
func New(h http.Handler, o Options) http.Handler {
	filters := []func(http.Handler) http.Handler{
		auditid.New(),
		recovery.New(o.Log),
		requestinfo.New(),
		o.Testing.Record,
		requestmetrics.New(o.Requests),
		o.Audit.Begin,
		requestlog.New(o.Log),
		retryafter.New(o.Stop.Refusing),
		exclusive.New(o.Copy.Exclusive),
		hsts.New(o.Browsers.HSTSDirectives),
		cachecontrol.New(),
		goaway.New(o.GoawayChance, nil),
		deadline.New(deadline.Options{
			Limit: o.RequestTimeout, Grace: answerGrace, BodyGrace: bodyGrace, Spread: o.Stop.Spread, Stopping: o.Stop.Begun,
			Forwarder: o.Forwarder, Running: o.Stop.Running, Abandoned: deadline.NewMetrics(o.Metrics),
			LongRunning: o.Stop.LongRunning,
		}),
		recovery.New(o.Log), // a second time, because deadline runs the following filters on another goroutine
		cors.New(o.Browsers.CORSAllowedOrigins),
		o.Browsers.Unauthenticated,
	}
	filters = append(filters, requestmetrics.Timed(o.Requests, tracingfilter.Each(o.Tracer, []requestmetrics.Named{
		{Name: "authentication", Filter: authenticate.New(o.Authentication)},
		{Filter: tracingfilter.Server(o.Tracer)},
		{Name: "audit", Filter: o.Audit.Filter},
		o.impersonation(),
		{Filter: standby.New(o.Copy.Standby)},
		{Filter: o.Testing.Disturb},
		{Name: "priorityandfairness", Filter: o.Limit},
		{Name: "authorization", Filter: authorize.New(o.Authorization.Authorizer, authorize.NewMetrics(o.Metrics))},
	}))...)
	filters = append(filters, forward.New(o.Forwarder), body.New(fairshare.NewPool(body.Budget), o.Stop.Begun))
	for i := len(filters) - 1; i >= 0; i-- {
		if filters[i] != nil { // nil if the filter is not configured
			h = filters[i](h)
		}
	}
	return h
}

// impersonation returns the filter of impersonation, whose name in metrics depends on the gate as in kube-apiserver.
func (o *Options) impersonation() requestmetrics.Named {
	a, name := &o.Authorization, "impersonation"
	if a.ConstrainedImpersonation {
		name = "constrainedimpersonation"
	}
	return requestmetrics.Named{
		Name: name, Filter: impersonate.New(a.Authorizer, impersonate.NewMetrics(o.Metrics), a.ConstrainedImpersonation),
	}
}
