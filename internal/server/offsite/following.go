package offsite

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/gateway/filter/standby"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/copies"
)

// Following is what a server serves that follows another one.
type Following struct {
	// Store has the changes of the other server as they are applied. It takes no writes.
	Store storage.Store
	looks *atomic.Pointer[look]
}

// look is what a standby found when it last had everything that was in the copy.
type look struct {
	at     time.Duration // when the look began, by copies.SinceBoot
	end    copies.Position
	server string // the holder of the lock
}

// State returns how far the standby has followed. It may be called concurrently.
func (f *Following) State() standby.State {
	l := f.looks.Load()
	return standby.State{
		Age: copies.SinceBoot() - l.at, Revision: l.end.Revision, Changed: l.end.Time, Server: l.server,
	}
}

// Remark says how far the standby is behind.
func (f *Following) Remark() string { return f.State().String() }

// Register registers the metrics.
func (f *Following) Register(m *metrics.Metrics) {
	m.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "keelson_standby_behind_seconds",
		Help: "Time since this standby had everything that was in the copy (--serve-stale).",
	}, func() float64 { return f.State().Age.Seconds() }))
	m.GaugeFunc("keelson_standby_revision", "The last revision that this standby has (--serve-stale).",
		func() int64 { return f.State().Revision })
}

// serve lets readers in as soon as the store that follows is there.
func (s *Standby) serve(ctx context.Context) error {
	store := s.follower.Reads()
	if s.Serve == nil || s.endServing != nil || store == nil {
		return nil
	}
	if err := s.installFiles(); err != nil {
		return err
	}
	end, err := s.Serve(ctx, &Following{Store: store, looks: &s.last})
	if err == nil {
		s.endServing = end
	}
	return err
}

// stopServing ends what serve has started.
func (s *Standby) stopServing() {
	if s.endServing != nil {
		s.endServing()
		s.endServing = nil
	}
}
