package offsite_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/server/offsite"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/storage/copies"
)

// exclusive is the configuration of a server that can be taken over.
func exclusive(t *testing.T, to string) servertest.Config {
	c := withCopy(t, to)
	c.Storage.Backup.Exclusive, c.Storage.Backup.LockDuration = true, 2*time.Second
	return c
}

// follow runs a standby until it takes over.
func follow(t *testing.T, c servertest.Config, log *apitest.Log) <-chan *copies.Handover {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	taken := make(chan *copies.Handover, 1)
	go func() {
		s := &offsite.Standby{Config: &c.Storage, Name: "standby", Log: slog.New(slog.NewTextHandler(log, nil))}
		h, err := s.Run(ctx)
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		taken <- h
	}()
	return taken
}

// awaitLog waits for a text in the log of a standby.
func awaitLog(t *testing.T, log *apitest.Log, text string) {
	t.Helper()
	wait.Seen(t, text, func() (bool, string) { return strings.Contains(log.String(), text), log.String() })
}

// TestPromote checks that a standby takes over only after an order, and not while the server lives; that the new server has everything at
// higher revisions; and that the old one, which is started again, does not answer beside it and follows it then.
func TestPromote(t *testing.T) {
	to := t.TempDir()
	first, second := exclusive(t, to), exclusive(t, to)
	const path = "/api/v1/namespaces/default/configmaps"
	a := servertest.Start(t, first)
	a.Create(path, apitest.ConfigMap("c"))
	before := a.Metadata(path + "/c").ResourceVersion
	var log apitest.Log
	taken := follow(t, second, &log)
	awaitLog(t, &log, "follows the copy")
	wait.NoError(t, "the order to take over", func() error { return offsite.Promote(second.Storage.DataDir) })
	if err := offsite.Promote(t.TempDir()); err == nil {
		t.Error("a standby that does not exist was promoted")
	}
	a.Create(path, apitest.ConfigMap("d"))
	select {
	case <-taken:
		t.Fatal("the standby took over from a server that lives")
	case <-time.After(3 * time.Second): // longer than the lock is valid without being renewed
	}
	servertest.Stop(t, a)
	second.Handover = wait.Receive(t, "the takeover", taken)
	if second.Handover == nil {
		t.Fatal(log.String())
	}
	b := servertest.Start(t, second)
	b.Get(path + "/d")
	if got := b.Metadata(path + "/c").ResourceVersion; got != before {
		t.Errorf("the object has revision %s, and had %s", got, before)
	}
	b.Create(path, apitest.ConfigMap("e"))
	if e := b.Metadata(path + "/e").ResourceVersion; len(e) < 10 {
		t.Errorf("the first change of the new server has revision %s", e)
	}
	if s, err := server.Start(t.Context(), first.Config, first.Options); err == nil {
		servertest.Stop(t, s)
		t.Error("the old server answers beside the new one")
	}
	var again apitest.Log
	taken = follow(t, first, &again)
	awaitLog(t, &again, "follows the copy")
	servertest.Stop(t, b)
	wait.NoError(t, "the order to take over", func() error { return offsite.Promote(first.Storage.DataDir) })
	if first.Handover = wait.Receive(t, "the takeover back", taken); first.Handover == nil {
		t.Fatal(again.String())
	}
	servertest.Start(t, first).Get(path + "/e")
	if _, err := os.Stat(filepath.Join(first.Storage.DataDir, "store.replaced")); err != nil {
		t.Errorf("the store that was replaced: %v", err)
	}
}

// TestPlaceThatWasEmptied checks that neither a standby nor a server takes an empty place for the one that it has used before.
func TestPlaceThatWasEmptied(t *testing.T) {
	to := t.TempDir()
	first, second := exclusive(t, to), exclusive(t, to)
	a := servertest.Start(t, first)
	var log apitest.Log
	taken := follow(t, second, &log)
	awaitLog(t, &log, "follows the copy")
	servertest.Stop(t, a)
	entries, err := os.ReadDir(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(to, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	wait.NoError(t, "the order to take over", func() error { return offsite.Promote(second.Storage.DataDir) })
	awaitLog(t, &log, "it was emptied")
	select {
	case h := <-taken:
		t.Errorf("the standby took over: %+v", h)
	default:
	}
	if s, err := server.Start(t.Context(), first.Config, first.Options); err == nil {
		servertest.Stop(t, s)
		t.Error("the server began a new copy in an empty place")
	} else if !strings.Contains(err.Error(), "it was emptied") {
		t.Error(err)
	}
}
