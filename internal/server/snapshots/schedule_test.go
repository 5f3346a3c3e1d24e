package snapshots

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

func TestUntilNextSnapshot(t *testing.T) {
	now := time.Unix(2e9, 0)
	for age, want := range map[time.Duration]time.Duration{
		0: time.Hour, 20 * time.Minute: 40 * time.Minute, time.Hour: 0, 48 * time.Hour: 0,
		-time.Minute: time.Hour, -48 * time.Hour: time.Hour, // the clock was set back
	} {
		if got := untilNext(now.Add(-age), now, time.Hour); got != want {
			t.Errorf("the newest snapshot is %v old: the next in %v, want %v", age, got, want)
		}
	}
}

// failingExporter is a store whose Export always fails.
type failingExporter struct{}

func (failingExporter) Export(context.Context) (*embedded.Export, error) {
	return nil, errors.New("cause")
}

// TestFailedScheduledSnapshot checks that a failed snapshot is counted and tried again before the interval has passed.
func TestFailedScheduledSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Schedule{
			Store: failingExporter{}, directory: &backup.Directory{Path: t.TempDir(), Keep: 1}, interval: time.Hour,
			files:   func() (map[string][]byte, error) { return nil, nil },
			metrics: newMetrics(metrics.New(nil, metrics.Options{}), time.Hour), log: slog.New(slog.DiscardHandler),
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*retryTime+time.Second)
		defer cancel()
		s.Run(ctx)
		if failed := valueOf(t, s.metrics.failed).GetCounter().GetValue(); failed != 3 {
			t.Errorf("%v failed snapshots in a little more than twice %v, want 3", failed, retryTime)
		}
		if last := valueOf(t, s.metrics.last).GetGauge().GetValue(); last != 0 {
			t.Errorf("the last success was at %v", last)
		}
	})
}

func valueOf(t *testing.T, m prometheus.Metric) *dto.Metric {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return &out
}
