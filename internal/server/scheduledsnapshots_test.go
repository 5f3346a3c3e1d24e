package server

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
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

// TestScheduledSnapshotAfterRestart checks that a server writes a snapshot at its first start, and none at the second.
func TestScheduledSnapshotAfterRestart(t *testing.T) {
	c := testConfig(t)
	c.Storage.Snapshots.Interval = time.Hour
	c.Storage.Snapshots.Dir = filepath.Join(t.TempDir(), "a", "b")
	written := func() []string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(c.Storage.Snapshots.Dir, "*.snapshot"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	withLast := regexp.MustCompile(`\nkeelson_snapshot_last_success_timestamp_seconds [1-9].*\n(.*\n)*` +
		`keelson_snapshots_total{status="success"} (\d)\n`)
	for i, want := range []string{"1", "0"} {
		s := start(t, c)
		var found []string
		wait.Until(t, "the time of the last snapshot", func() bool {
			found = withLast.FindStringSubmatch(apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/metrics", "").Body)
			return found != nil && (i > 0 || found[2] != "0")
		})
		if found[2] != want {
			t.Errorf("start %d: %s snapshots, want %s", i, found[2], want)
		}
		stop(t, s)
		if files := written(); len(files) != 1 {
			t.Errorf("start %d: there are %v", i, files)
		}
	}
}

// failingExporter is a store of which no state can be had.
type failingExporter struct{}

func (failingExporter) Export(context.Context) (*embedded.Export, error) {
	return nil, errors.New("cause")
}

// TestFailedScheduledSnapshot checks that a failed snapshot is counted and tried again before the interval has passed.
func TestFailedScheduledSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scheduledSnapshots{
			store: failingExporter{}, directory: &backup.Directory{Path: t.TempDir(), Keep: 1}, interval: time.Hour,
			files:   func(context.Context) (map[string][]byte, error) { return nil, nil },
			metrics: newSnapshotMetrics(metrics.New(nil, metrics.Options{}), time.Hour), log: slog.New(slog.DiscardHandler),
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*snapshotRetry+time.Second)
		defer cancel()
		s.run(ctx)
		if failed := valueOf(t, s.metrics.failed).GetCounter().GetValue(); failed != 3 {
			t.Errorf("%v failed snapshots in a little more than twice %v, want 3", failed, snapshotRetry)
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

// TestSnapshotDirectoryOfOneServer checks that two servers cannot use one directory, and that it is free after the stop.
func TestSnapshotDirectoryOfOneServer(t *testing.T) {
	first, second := testConfig(t), testConfig(t)
	first.Storage.Snapshots.Interval, first.Storage.Snapshots.Dir = time.Hour, t.TempDir()
	second.Storage.Snapshots = first.Storage.Snapshots
	s := start(t, first)
	if other, err := Start(t.Context(), second.Config, second.Options); err == nil {
		stop(t, other)
		t.Error("two servers use one directory")
	} else if !strings.Contains(err.Error(), "is used by another server") {
		t.Error(err)
	}
	stop(t, s)
	start(t, second)
}

// TestRecipientsThatAreNone checks values of --snapshot-recipient by which snapshots would not be encrypted, or a secret would
// be logged.
func TestRecipientsThatAreNone(t *testing.T) {
	c := testConfig(t)
	c.Storage.Snapshots.Interval = time.Hour
	c.FlagGiven = func(name string) bool { return name == "snapshot-recipient" }
	if _, err := Start(t.Context(), c.Config, c.Options); err == nil || !strings.Contains(err.Error(), "would not be encrypted") {
		t.Errorf("no recipient: %v", err)
	}
	const secret = "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ"
	c.Storage.Snapshots.Recipients = []string{secret}
	if _, err := Start(t.Context(), c.Config, c.Options); err == nil || strings.Contains(err.Error(), "QQQ") {
		t.Errorf("a secret key: %v", err)
	}
}
