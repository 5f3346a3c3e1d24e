package chaos

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/test/history"
	"github.com/keelson-dev/keelson/test/rig"
)

// TestStalledClients has fifty watchers stop reading while others go on, with more
// written than connections and the cache's log can hold. What the others see is
// checked as ever, memory does not grow with the watchers, and those that read on
// get everything, in order.
func TestStalledClients(t *testing.T) {
	const (
		stalled = 50
		size    = 20_000 // of a value
		writes  = 500
		most    = 200 << 20 // bytes; a copy of all for each watcher is 500 MB
		reading = 10        // of the watchers read on at the end, the others hang up
	)
	m := newMachine(t)
	m.cache = cache.Options{WindowBytes: 1 << 20}
	m.start()
	m.s.Begin(true)
	m.s.Padding = strings.Repeat("+", size)
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience) // of all that follows
	defer cancel()

	release := make(chan struct{})
	var watchers sync.WaitGroup
	watches := make([]history.Watch, stalled)
	errs := make([]error, stalled)
	var stopped sync.WaitGroup // each has had an event, and reads no more
	end := m.s.Fresh("end")
	for i := range stalled {
		stopped.Add(1)
		watchers.Go(func() {
			w := history.Watch{Name: fmt.Sprintf("stalled %d", i), From: m.s.Log.From}
			first := sync.OnceFunc(stopped.Done)
			defer first()
			errs[i] = m.s.Client(200+i).Watch(ctx, rig.WatchOptions{From: w.From, Told: func(e history.Event) bool {
				first()
				select {
				case <-release:
				case <-ctx.Done():
				}
				if i >= reading {
					return false
				}
				e.State.Value = strings.Clone(e.State.Value[:min(len(e.State.Value), 20)]) // not 50 copies of all
				w.Events = append(w.Events, e)
				return e.Key != end
			}})
			watches[i] = w
		})
	}
	c := m.s.Client(0)
	c.Create(ctx, m.s.Fresh("begin"), m.s.Value(), "red")
	stopped.Wait() // until their first event, or ctx ends them
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

// heap is the memory in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
