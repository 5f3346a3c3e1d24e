package config

import "time"

// Requests has the limits of requests, and headers of their responses.
type Requests struct {
	// Timeout bounds a request that is not long-running. The default is 1 minute (--request-timeout).
	Timeout time.Duration `flag:"request-timeout"`
	// MinWatchTimeout is the least duration of a watch whose request sets no timeout, in whole seconds. The server
	// chooses a random duration between this and twice this. The default is 30 minutes (--min-request-timeout).
	MinWatchTimeout time.Duration `flag:"min-request-timeout"`
	// MaxInFlight is how many requests that read are served at a time. The default is 400; None is no limit. With priority
	// and fairness only the sum of this and MaxMutatingInFlight matters, which must not be 0 (--max-requests-inflight).
	MaxInFlight int `flag:"max-requests-inflight"`
	// MaxMutatingInFlight is how many requests that change something are served at a time. The default is 200; None is no
	// limit (--max-mutating-requests-inflight).
	MaxMutatingInFlight int `flag:"max-mutating-requests-inflight"`
	// NoPriorityAndFairness refuses requests above the limits, instead of dividing the requests in flight by FlowSchemas and
	// PriorityLevelConfigurations and queueing those that have to wait (--enable-priority-and-fairness=false).
	NoPriorityAndFairness bool `flag:"!enable-priority-and-fairness"`
	// DeleteCollectionWorkers is how many objects one request that deletes a collection deletes at a time. The default is 1
	// (--delete-collection-workers).
	DeleteCollectionWorkers int `flag:"delete-collection-workers"`
	// CORSAllowedOrigins are regular expressions of the origins whose pages may use the API (--cors-allowed-origins).
	CORSAllowedOrigins []string `flag:"cors-allowed-origins"`
	// HSTSDirectives are the directives of the header Strict-Transport-Security (--strict-transport-security-directives).
	HSTSDirectives []string `flag:"strict-transport-security-directives"`
	// GoawayChance is the fraction of HTTP/2 requests that are answered with GOAWAY, so that the client opens another
	// connection. It is at most 0.02; the default is 0 (--goaway-chance).
	GoawayChance float64 `flag:"goaway-chance"`
}
