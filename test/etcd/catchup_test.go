package etcd

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// stringCodec uses values without encoding them.
type stringCodec struct{}

func (stringCodec) Read(_ string, value []byte, _ int64) (cache.Header, error) {
	return cache.Header{Data: value}, nil
}

func (stringCodec) Restamp(data []byte, _ int64) ([]byte, error) { return data, nil }

// memoryOf returns a figure of a process from /proc, such as VmRSS, in MiB.
func memoryOf(t *testing.T, pid int, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib / 1024
		}
	}
	t.Fatalf("no %s in the status of a process", name)
	return 0
}

// streamsOf returns the number of watch streams of a member.
func streamsOf(t *testing.T, client string) int {
	t.Helper()
	answer, err := http.Get(client + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(answer.Body); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(body.String()) {
		if rest, ok := strings.CutPrefix(line, "etcd_debugging_mvcc_watch_stream_total "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the member does not say how many streams it has")
	return 0
}

// TestStalledWatchersOfOldRevisions has watchers that start below the cache's log and stop reading. They must not use
// streams, and so memory of etcd, beyond a few; watchers that continue reading must get every event.
func TestStalledWatchersOfOldRevisions(t *testing.T) {
	const watchers = 40
	updates, size := 300, 20_000
	if long() {
		updates, size = 2141, 100_000
	}
	p := startProcesses(t, 1, 0, "token")
	member := p.members[0]
	store, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{member.Client}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	from, err := store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range updates {
		op := storage.Put(fmt.Sprintf("/registry/configmaps/ns/c%d", i%10), bytes.Repeat([]byte{byte('a' + i%26)}, size))
		if _, err := store.Commit(t.Context(), storage.Txn{Ops: []storage.Op{op}}); err != nil {
			t.Fatal(err)
		}
	}
	c := cache.New(cache.Options{Store: store, Logger: quiet()})
	defer c.Close()
	r := c.Resource(
		cache.Config{Resource: "configmaps", Prefix: "/registry/configmaps/", Namespaced: true, Codec: stringCodec{}},
	)
	if _, err := r.Snapshot(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	pid := p.running.members[0].cmd.Process.Pid
	before := memoryOf(t, pid, "VmRSS")

	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	cursors, got := make([]*cache.Cursor, watchers), make([]int, watchers)
	all := func(what string, do func(i int) error) {
		t.Helper()
		var running sync.WaitGroup
		for i := range watchers {
			running.Go(func() {
				if err := do(i); err != nil {
					t.Errorf("watcher %d, %s: %v", i, what, err)
				}
			})
		}
		running.Wait()
	}
	all("first events", func(i int) (err error) {
		if cursors[i], err = r.Watch(ctx, from, cache.Interest{}); err != nil {
			return err
		}
		events, _, err := cursors[i].Next(ctx)
		got[i] += len(events)
		return err
	})
	if t.Failed() {
		return
	}
	open := streamsOf(t, member.Client)
	time.Sleep(3 * time.Second) // so that the watchers stall
	t.Logf("%d watchers stalled over %d updates of %d bytes: %d streams, then %d; "+
		"etcd %d MiB before, %d MiB now, %d MiB at most",
		watchers, updates, size, open, streamsOf(t, member.Client), before, memoryOf(t, pid, "VmRSS"), memoryOf(t, pid,
			"VmHWM"))
	const feed, catchUp = 1, 4
	if open > feed+catchUp {
		t.Errorf("%d streams are open, want %d at most", open, feed+catchUp)
	}
	all("the rest", func(i int) error {
		defer cursors[i].Close()
		for got[i] < updates {
			events, _, err := cursors[i].Next(ctx)
			if err != nil {
				return fmt.Errorf("after %d events: %w", got[i], err)
			}
			got[i] += len(events)
		}
		return nil
	})
	t.Logf("after all have read: etcd %d MiB, %d MiB at most", memoryOf(t, pid, "VmRSS"), memoryOf(t, pid, "VmHWM"))
}
