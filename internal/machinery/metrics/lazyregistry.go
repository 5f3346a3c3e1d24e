package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// lazyRegistry gathers metrics from collectors. They are registered when metrics are first gathered: registering them all
// takes half a millisecond and memory, and most servers of tests are never asked for their metrics. Two collectors of
// the same metric cause a panic then.
type lazyRegistry struct {
	Set                           // its members are not yet in registry
	registry *prometheus.Registry // nil before the first Gather
}

// Gather implements prometheus.Gatherer.
func (r *lazyRegistry) Gather() ([]*dto.MetricFamily, error) { return r.registered().Gather() }

func (r *lazyRegistry) registered() *prometheus.Registry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.registry == nil {
		r.registry = prometheus.NewRegistry()
	}
	r.registry.MustRegister(r.members...)
	r.members = nil
	return r.registry
}
