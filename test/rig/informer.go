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
func (i *Informer) Start(from int64) { i.last.Store(from) }

// Seen returns the revision of the last event or bookmark.
func (i *Informer) Seen() int64 { return i.last.Load() }

// Run watches until ctx ends.
func (i *Informer) Run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		err := i.once(ctx, n)
		i.mu.Lock()
		var refused *WatchError
		if errors.As(err, &refused) && refused.Code != 429 && refused.Code < 500 {
			i.errs = append(i.errs, fmt.Errorf("%s, resuming from %d: %w", i.Name, i.Seen(), err))
		}
		if i.current.From != 0 {
			i.ended = append(i.ended, i.current)
		}
		i.current = history.Watch{}
		i.mu.Unlock()
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}

// once runs the n-th watch until it ends.
func (i *Informer) once(ctx context.Context, n int) error {
	world := i.Client.Rec.World()
	begin := func(from int64, state map[string]history.State) bool {
		return i.record(world, func() {
			i.current = history.Watch{
				Name: fmt.Sprintf("%s, watch %d", i.Name, n), Selector: i.Selector, From: from, Initial: state,
			}
			i.last.Store(from)
		})
	}
	from := i.Seen()
	if from != 0 && !begin(from, nil) {
		return nil
	}
	return i.Client.Watch(ctx, WatchOptions{
		Selector: i.Selector, From: from, Seconds: i.Seconds, OnStart: begin,
		OnEvent: func(e history.Event) bool {
			return i.record(world, func() {
				i.current.Events = append(i.current.Events, e)
				i.last.Store(max(i.Seen(), e.State.Revision))
			})
		},
	})
}

// record calls note, which changes the fields guarded by mu, unless the world has ended. It reports whether it has
// called note.
func (i *Informer) record(world int, note func()) bool {
	return i.Client.Rec.RecordIn(world, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		note()
	})
}

// Ended returns the watches that have ended since the last call, and the errors.
func (i *Informer) Ended() ([]history.Watch, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := i.ended
	i.ended = nil
	return out, errors.Join(i.errs...)
}
