package server

import (
	"errors"
	"time"

	"github.com/keelson-dev/keelson/internal/gateway/filter/cors"
	"github.com/keelson-dev/keelson/internal/gateway/filter/goaway"
	"github.com/keelson-dev/keelson/internal/gateway/filter/hsts"
)

// FiltersConfig configures the filters.
type FiltersConfig struct {
	// CORSAllowedOrigins are regular expressions of the origins whose pages may use the API.
	CORSAllowedOrigins []string
	// HSTSDirectives are the directives of the header Strict-Transport-Security.
	HSTSDirectives []string
	// GoawayChance is the fraction of HTTP/2 requests that are answered with GOAWAY, so that the client opens
	// another connection. It is at most 0.02.
	GoawayChance float64
	// ShutdownSendRetryAfter keeps the server listening while it waits for requests in flight; new requests get 429.
	ShutdownSendRetryAfter bool
	// TracingConfigFile is a file with a TracingConfiguration of apiserver.config.k8s.io. Without it no request is traced.
	TracingConfigFile string
	// ShutdownWatchGrace is the time over which watches are ended when the server stops. 0 ends all at once.
	ShutdownWatchGrace time.Duration
}

// validate returns what is wrong with the configuration.
func (c *FiltersConfig) validate() []error {
	if c.ShutdownWatchGrace < 0 {
		return []error{errors.New("shutdown-watch-termination-grace-period, if provided, can not be a negative value")}
	}
	return []error{cors.Validate(c.CORSAllowedOrigins), hsts.Validate(c.HSTSDirectives), goaway.Validate(c.GoawayChance)}
}
