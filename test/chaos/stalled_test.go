package chaos

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/test/history"
	"github.com/keelson-dev/keelson/test/rig"
)

// TestStalledClients has fifty watchers that stop reading while other clients continue, and writes more than the
// connections and the cache's log can hold. The history of the others is checked as in the other tests. Memory must
// not grow with the number of watchers, and the watchers that continue reading must get every event in order.
func TestStalledClients(t *testing.T) {
	const (
		stalled = 50
		size    = 20_000 // bytes of a value
		writes  = 500
		most    = 200 << 20 // bytes; one copy of all events for each watcher would be 500 MB
		reading = 10        // so many watchers read to the end, the others close the connection
	)
	m := newMachine(t)
	m.cache = cache.Options{WindowBytes: 1 << 20}
	m.start()
	m.s.Begin(true)
	m.s.Padding = strings.Repeat("+", size)
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience) // for the whole test
	defer cancel()

	release := make(chan struct{})
	var watchers sync.WaitGroup
	watches := make([]history.Watch, stalled)
	errs := make([]error, stalled)
	var stopped sync.WaitGroup // done when each watcher has got one event and has stopped reading
	end := m.s.Fresh("end")
	for i := range stalled {
		stopped.Add(1)
		watchers.Go(func() {
			w := history.Watch{Name: fmt.Sprintf("stalled %d", i), From: m.s.Log.From}
			first := sync.OnceFunc(stopped.Done)
			defer first()
			errs[i] = m.s.Client(200+i).Watch(ctx, rig.WatchOptions{From: w.From, OnEvent: func(e history.Event) bool {
				first()
				select {
				case <-release:
				case <-ctx.Done():
				}
				if i >= reading {
					return false
				}
				// so that the test does not keep 50 copies of the values
				e.State.Value = strings.Clone(e.State.Value[:min(len(e.State.Value), 20)])
				w.Events = append(w.Events, e)
				return e.Key != end
			}})
			watches[i] = w
		})
	}
	c := m.s.Client(0)
	c.Create(ctx, m.s.Fresh("begin"), m.s.Value(), "red")
	stopped.Wait() // until each has got its first event, or ctx has ended
	if ctx.Err() != nil {
		t.Fatalf("%d watchers do not all get an event", stalled)
	}
	before := heap()
	for i := range writes {
		if op := c.Create(ctx, m.s.Fresh("w"), m.s.Value(), rig.Colors[i%3]); op.Outcome != history.Done {
			t.Fatalf("a write beside stalled watchers: %v", op.Outcome)
		}
	}
	if err := m.s.Check(); err != nil {
		t.Fatalf("the others: %.2000v", err)
	}
	if grown := heap() - before; grown > most {
		t.Errorf("%d bytes of memory for %d bytes written and %d stalled watchers", grown, writes*size, stalled)
	} else {
		t.Logf("memory grew by %d MB, with what the test keeps", grown>>20)
	}
	m.s.Padding = ""
	c.Create(ctx, end, m.s.Value(), "red")
	close(release)
	watchers.Wait()
	if err := m.s.Check(); err != nil {
		t.Fatal(err)
	}
	short := m.s.Log.Map(func(s history.State) history.State {
		s.Value = s.Value[:min(len(s.Value), 20)]
		return s
	})
	for i, w := range watches[:reading] {
		if errs[i] != nil {
			t.Errorf("%s: %v", w.Name, errs[i])
		} else if err := history.CheckWatch(w, short); err != nil {
			t.Errorf("%.2000v", err)
		}
	}
	if err := m.s.End(); err != nil {
		t.Fatalf("%.2000v", err)
	}
}

// heap returns the bytes of the heap in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
