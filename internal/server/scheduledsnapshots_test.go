package server

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

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

// TestSnapshotDirectoryOfOneServer checks that two servers cannot use one directory, and that Stop unlocks it.
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

// TestRecipientsThatAreNone checks invalid values of --snapshot-recipient. With them, snapshots would not be
// encrypted, or a secret key would be logged.
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
