package server

import (
	"context"
	"net/http"

	fairnessfilter "github.com/keelson-dev/keelson/internal/gateway/filter/fairness"
	"github.com/keelson-dev/keelson/internal/gateway/filter/inflight"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/server/fairness"
)

// startFairness starts API priority and fairness, unless it is switched off.
func (s *starting) startFairness(ctx context.Context) (err error) {
	c := &s.config.Requests
	if c.NoPriorityAndFairness {
		return nil
	}
	s.fairness, err = fairness.Start(ctx, fairness.Options{
		ReadOnly: c.MaxInFlight, Mutating: c.MaxMutatingInFlight, Registry: s.registry, Custom: s.api.custom.Objects,
		UpdateDangling: s.controlPlane.updateDangling, BySize: s.gates.Enabled(features.SizeBasedListCostEstimate),
		Work: s.work, Log: s.log,
	})
	if err == nil {
		s.metrics.Register(s.fairness.Collector(), s.fairness.QueueCollector())
	}
	return err
}

// limitRequests returns the filter that limits the requests in flight, and a function that returns their numbers.
func (s *starting) limitRequests() (filter func(http.Handler) http.Handler, current func() (int64, int64)) {
	if s.fairness != nil {
		return fairnessfilter.New(s.fairness, s.config.Requests.Timeout), s.fairness.Current
	}
	limiter := inflight.New(int64(s.config.Requests.MaxInFlight), int64(s.config.Requests.MaxMutatingInFlight))
	return limiter.Filter, limiter.Current
}
