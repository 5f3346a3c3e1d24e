package server

import (
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
}

// validate returns what is wrong with the configuration.
func (c *FiltersConfig) validate() []error {
	return []error{cors.Validate(c.CORSAllowedOrigins), hsts.Validate(c.HSTSDirectives), goaway.Validate(c.GoawayChance)}
}
