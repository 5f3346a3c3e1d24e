package inflight

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Collector returns a collector of the numbers of requests in flight, which current returns.
func Collector(current func() (readOnly, mutating int64)) prometheus.Collector {
	return metrics.ByRequestKind("apiserver_current_inflight_requests", "[STABLE] Maximal number of currently used inflight "+
		"request limit of this apiserver per request kind in last second.", current)
}
