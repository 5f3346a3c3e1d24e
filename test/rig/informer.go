package rig

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/test/history"
)

// Informer watches a selection for the duration of a test in the same way as a client-go informer: when a watch ends,
// it starts the next one at the revision that it has seen.
type Informer struct {
	Name     string
	Selector history.Selector
	Client   *Client
	Seconds  int // the timeoutSeconds of each watch; 0 leaves it to the server

	last atomic.Int64 // the last revision that was seen

	mu      sync.Mutex // guards the fields below
	ended   []history.Watch
	current history.Watch
	errs    []error
}

// Start sets the first revision; with 0 the server sends its current state first.
func (f *Informer) Start(from int64) { f.last.Store(from) }

// Seen returns the revision of the last event or bookmark.
func (f *Informer) Seen() int64 { return f.last.Load() }

// Run watches until ctx ends.
func (f *Informer) Run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		err := f.once(ctx, n)
		f.mu.Lock()
		var refused *WatchError
		if errors.As(err, &refused) && refused.Code != 429 && refused.Code < 500 {
			f.errs = append(f.errs, fmt.Errorf("%s, resuming from %d: %w", f.Name, f.Seen(), err))
		}
		if f.current.From != 0 {
			f.ended = append(f.ended, f.current)
		}
		f.current = history.Watch{}
		f.mu.Unlock()
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}

// once runs the n-th watch until it ends.
func (f *Informer) once(ctx context.Context, n int) error {
	world := f.Client.Rec.World()
	begin := func(from int64, state map[string]history.State) bool {
		return f.record(world, func() {
			f.current = history.Watch{
				Name: fmt.Sprintf("%s, watch %d", f.Name, n), Selector: f.Selector, From: from, Initial: state,
			}
			f.last.Store(from)
		})
	}
	from := f.Seen()
	if from != 0 && !begin(from, nil) {
		return nil
	}
	return f.Client.Watch(ctx, WatchOptions{
		Selector: f.Selector, From: from, Seconds: f.Seconds, OnStart: begin,
		OnEvent: func(e history.Event) bool {
			return f.record(world, func() {
				f.current.Events = append(f.current.Events, e)
				f.last.Store(max(f.Seen(), e.State.Revision))
			})
		},
	})
}

// record calls note, which changes the fields guarded by mu, unless the world has ended. It reports whether it has
// called note.
func (f *Informer) record(world int, note func()) bool {
	return f.Client.Rec.RecordIn(world, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		note()
	})
}

// Ended returns the watches that have ended since the last call, and the errors.
func (f *Informer) Ended() ([]history.Watch, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.ended
	f.ended = nil
	return out, errors.Join(f.errs...)
}
