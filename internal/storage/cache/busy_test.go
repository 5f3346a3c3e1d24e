package cache

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage"
)

// TestBusy: from the moment when the cache has applied a change, the resource is busy until the user of the cursor
// calls Next again. A cursor that stops waiting because of a tick or the end of its context is counted only once.
func TestBusy(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage.Store) {
		c := newCache(t, s, nil)
		r := c.Resource(podConfig())
		busy := func() bool { return slices.Contains(c.Busy(), podConfig().Resource) }
		idle := func() {
			t.Helper()
			wait.Until(t, "idle", func() bool { return !busy() })
		}
		from, err := c.Current(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		const cursors = 3
		var worked [cursors]atomic.Int64 // the revision of the last event that the owner of a cursor has worked on
		for i, in := range []Interest{{}, {Namespace: "a"}, {Namespace: "a", Name: "x"}} {
			cursor := watch(t, r, from, in)
			tick := time.NewTicker(time.Millisecond)
			go func() {
				defer func() { ended <- struct{}{} }()
				defer tick.Stop()
				defer cursor.Close()
				for {
					events, _, err := cursor.NextOr(ctx, tick.C)
					if err != nil {
						return
					}
					for _, e := range events {
						worked[i].Store(e.Revision)
					}
				}
			}()
		}
		var revision int64
		for range 300 {
			revision = put(t, s, "a/x", "n1|red|x")
			wait.Until(t, "applied", func() bool { return c.Applied() >= revision })
			idle()
			for i := range worked {
				if got := worked[i].Load(); got < revision {
					t.Fatalf("idle at revision %d, but cursor %d has got events until %d only", revision, i, got)
				}
			}
		}
		cancel()
		for range cursors {
			<-ended
		}
		if n := r.published.busy.Load(); n != 0 {
			t.Errorf("%d cursors are busy after all were closed", n)
		}
		idle()
		cursor := watch(t, r, revision, Interest{})
		defer cursor.Close()
		if !busy() {
			t.Error("idle although a cursor has not begun to wait")
		}
	})
}
