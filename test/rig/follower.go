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

// Informer watches a selection for the length of a test as an informer does: when
// a watch ends it begins the next one where it was.
type Informer struct {
	Name     string
	Selector history.Selector
	Client   *Client
	Seconds  int // that each watch lasts, at most; 0 is as the server likes

	last atomic.Int64 // revision seen

	mu      sync.Mutex // guards the rest
	ended   []history.Watch
	current history.Watch
	errs    []error
}

// Start begins at a revision; 0 lets the server begin with its state.
func (f *Informer) Start(from int64) { f.last.Store(from) }

// Seen is the revision of the last event or bookmark.
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

func (f *Informer) once(ctx context.Context, n int) error {
	world := f.Client.Rec.World()
	begin := func(from int64, state map[string]history.State) bool {
		return f.told(world, func() {
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
		Selector: f.Selector, From: from, Seconds: f.Seconds, Began: begin,
		Told: func(e history.Event) bool {
			return f.told(world, func() {
				f.current.Events = append(f.current.Events, e)
				f.last.Store(max(f.Seen(), e.State.Revision))
			})
		},
	})
}

func (f *Informer) told(world int, note func()) bool {
	return f.Client.Rec.Told(world, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		note()
	})
}

// Ended returns, and forgets, the watches that have ended, and what went wrong.
func (f *Informer) Ended() ([]history.Watch, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.ended
	f.ended = nil
	return out, errors.Join(f.errs...)
}
