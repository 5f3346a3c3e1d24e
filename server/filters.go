package server

import (
	"errors"
	"time"

	"github.com/keelson-dev/keelson/filter/cors"
	"github.com/keelson-dev/keelson/filter/goaway"
	"github.com/keelson-dev/keelson/filter/hsts"
)

// FiltersConfig is how requests are treated before they are served.
type FiltersConfig struct {
	// CORSAllowedOrigins are expressions of origins whose pages may use the API.
	CORSAllowedOrigins []string
	// HSTSDirectives are sent as Strict-Transport-Security.
	HSTSDirectives []string
	// GoawayChance is the fraction of HTTP/2 requests after which the client is sent
	// to another connection; at most 0.02.
	GoawayChance float64
	// ShutdownSendRetryAfter keeps listening while requests in flight are finished,
	// and answers new ones 429.
	ShutdownSendRetryAfter bool
	// ShutdownWatchGrace is the time over which watches end when the server stops; 0
	// ends all at once.
	ShutdownWatchGrace time.Duration
}

// validate returns what is wrong with the configuration.
func (c *FiltersConfig) validate() []error {
	if c.ShutdownWatchGrace < 0 {
		return []error{errors.New("shutdown-watch-termination-grace-period, if provided, can not be a negative value")}
	}
	return []error{cors.Validate(c.CORSAllowedOrigins), hsts.Validate(c.HSTSDirectives), goaway.Validate(c.GoawayChance)}
}
