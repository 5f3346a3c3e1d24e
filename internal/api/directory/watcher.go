package directory

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Watcher collects the versions of groups whose resources have changed since they were last taken. It keeps each
// version once, however often it changes, so that a slow reader costs no memory.
type Watcher struct {
	d       *Directory
	mu      sync.Mutex // guards what follows
	changed map[schema.GroupVersion]bool
	taken   bool          // the last Take returned versions
	ready   chan struct{} // holds one element while changed is not empty
}

// Watch returns a Watcher. Its first Take returns all versions that the directory has.
func (d *Directory) Watch() *Watcher {
	w := &Watcher{d: d, changed: map[schema.GroupVersion]bool{}, ready: make(chan struct{}, 1)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchers[w] = true
	for group, versions := range d.groups {
		for version := range versions {
			w.add(schema.GroupVersion{Group: group, Version: version})
		}
	}
	return w
}

// notify adds a version to all watchers. d.mu is held.
func (d *Directory) notify(gv schema.GroupVersion) {
	for w := range d.watchers {
		w.add(gv)
	}
}

func (w *Watcher) add(gv schema.GroupVersion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed[gv] = true
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// Take returns the versions whose resources have changed since the last Take or Next, in no order; they may have no
// resources now. It does not wait, and returns nil if nothing has changed.
func (w *Watcher) Take() []schema.GroupVersion {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.ready:
	default:
	}
	w.taken = len(w.changed) > 0
	changed := slices.Collect(maps.Keys(w.changed))
	clear(w.changed)
	return changed
}

// Next waits for a change and returns what Take returns. It fails only when ctx ends.
func (w *Watcher) Next(ctx context.Context) ([]schema.GroupVersion, error) {
	for {
		if changed := w.Take(); len(changed) > 0 {
			return changed, nil
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Pending reports whether there are changes that were not taken yet, or whether the last Take or Next returned
// any. In the second case the caller of Take may still work on them until it calls again.
func (w *Watcher) Pending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken || len(w.changed) > 0
}

// Close stops the Watcher: it gets no further changes.
func (w *Watcher) Close() {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	delete(w.d.watchers, w)
}
