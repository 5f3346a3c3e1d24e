package cache

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache/index"
)

// minLoadPause and maxLoadPause bound the pause before a load is tried again because the store compacted the revision
// that was read. Each pause is twice as long as the one before.
const (
	minLoadPause = 50 * time.Millisecond
	maxLoadPause = 5 * time.Second
)

// load is a load in progress: of all objects, or of the first ones to find out whether the resource is small.
type load struct {
	done chan struct{} // closed at the end
	err  error         // set before done is closed if the load failed
	// limit is the largest memory of the objects, in bytes. If it is 0, only a small resource is loaded.
	limit atomic.Int64

	// The following fields are guarded by Resource.write. events are the changes that the feed received during the
	// load of an unused resource, up to revision. The objects must be read at the revision atLeast or later,
	// because the feed has missed changes before atLeast.
	events   []storage.Event
	revision int64
	atLeast  int64
}

// errTooLarge is the error of a load whose objects would take more memory than they may.
var errTooLarge = errors.New("the objects are too large to be kept in memory")

// waitLoaded waits until the resource is followed or, if limit is not 0, loaded. It starts a load if none is in
// progress. The load continues if ctx ends. If the objects take more than limit, it returns errTooLarge, and the
// resource is followed.
func (r *Resource) waitLoaded(ctx context.Context, limit int64) error {
	for {
		r.write.Lock()
		if err := r.err(); err != nil {
			r.write.Unlock()
			return err
		}
		if st := r.published.state.Load(); st != nil && (st.loaded || limit == 0) {
			r.write.Unlock()
			return nil
		}
		load := r.startLoad(limit)
		r.write.Unlock()
		if load == nil {
			return storage.ErrClosed
		}
		select {
		case <-load.done:
			if load.err != nil && (limit > 0 || !errors.Is(load.err, errTooLarge)) {
				return load.err
			}
		case <-ctx.Done():
			return fmt.Errorf("cache: loading %s: %w", r.config.Resource, ctx.Err())
		}
	}
}

// startLoad returns the load in progress, or starts one. It returns nil if the cache is closed. The caller holds write.
func (r *Resource) startLoad(limit int64) *load {
	l := r.loading
	if l == nil {
		l = &load{done: make(chan struct{})}
		l.limit.Store(limit)
		r.loading = l
		if !r.cache.background.spawn(func() { r.runLoad(l) }) {
			r.loading = nil
			return nil
		}
	}
	l.limit.Store(max(l.limit.Load(), limit))
	return l
}

// runLoad loads the resource. Before it begins to read the store, receive already collects the changes. So no
// change is missed between the objects and the log.
func (r *Resource) runLoad(load *load) {
	select {
	case <-r.cache.feed.started:
	case <-r.cache.background.ctx.Done():
	}
	var err error
	for wait := minLoadPause; ; wait = min(2*wait, maxLoadPause) {
		var f fetchResult
		f, err = r.fetch(r.cache.background.ctx, load)
		if err == nil && r.published.state.Load() != nil {
			// The log must have all changes up to the revision of the objects.
			err = r.cache.await(r.cache.background.ctx, f.revision)
		}
		if err == nil && r.install(load, f) || err != nil && !isCompacted(err) {
			break
		}
		// The load took longer than the store or the log keeps changes. The growing pauses limit the work of the
		// store if that happens again and again.
		r.cache.logger.Warn("cache: a load did not end with a state to go on from, trying again",
			"resource", r.config.Resource, "after", wait, "error", err)
		if !r.cache.background.pause(wait) {
			err = storage.ErrClosed
			break
		}
	}
	if err != nil {
		r.write.Lock()
		if ended := r.err(); ended != nil {
			err = ended
		}
		load.err = fmt.Errorf("cache: loading %s: %w", r.config.Resource, err)
		r.config.Metrics.Add(LoadErrors, 1)
		r.loading = nil
		r.write.Unlock()
	}
	close(load.done)
}

// fetchResult is the result of reading the store for a load: all objects, or only the first ones of a large resource.
type fetchResult struct {
	all      bool  // objects contains all objects
	limit    int64 // the limit of the load when the last object was read
	objects  index.Set[*Object]
	bytes    int64 // memory of the objects
	revision int64
	began    time.Time
}

// fetch reads the objects from the store. It stops when they take more memory than the limit of the load and are
// no longer a small resource.
func (r *Resource) fetch(ctx context.Context, load *load) (fetchResult, error) {
	start := time.Now()
	var bytes, limit int64
	n := 0
	edit := r.decoder.newObjectSet().Edit()
	room := r.cache.memory.LoadedBytes - r.cache.loadedBytes(r) // bounds small resources; limit bounds large ones
	all, revision, err := r.store.scan(ctx, 0, func(e storage.Entry) bool {
		o := r.decoder.read(e, nil)
		edit.Put(o.Key, o)
		n, bytes = n+1, bytes+o.memoryBytes()
		limit = load.limit.Load()
		return bytes <= limit || bytes <= room && r.cache.memory.small(n, bytes)
	})
	r.config.Metrics.List(false, "", start, n, n)
	r.usage.noteSize(n, bytes)
	return fetchResult{all: all, limit: limit, objects: edit.Done(), bytes: bytes, revision: revision, began: start}, err
}

// install ends a load with the objects that were read. It returns false if they are too old, or if the read
// stopped at the limit of the load and the limit was raised meanwhile. The load must then be repeated.
func (r *Resource) install(load *load, f fetchResult) bool {
	r.write.Lock()
	defer r.write.Unlock()
	st := r.published.state.Load()
	switch {
	case r.err() != nil:
		load.err = fmt.Errorf("cache: loading %s: %w", r.config.Resource, r.err())
	case f.revision < load.atLeast, !f.all && load.limit.Load() > f.limit:
		return false
	case st == nil:
		r.enter(f, max(f.revision, load.revision), load.events)
	case f.all && !r.installObjects(f):
		return false
	}
	if !f.all && f.limit > 0 && load.err == nil {
		load.err = errTooLarge
		r.usage.noteFull()
	}
	r.loading = nil
	return true
}

// enter makes an unused resource loaded or followed. changes are the changes up to revision that were received
// during the load. They are part of the first visible state, because the feed may already have announced their
// revisions as applied. The caller holds write.
func (r *Resource) enter(f fetchResult, revision int64, changes []storage.Event) {
	r.usage.used.Store(true)
	st := &state{revision: f.revision, loaded: f.all, from: f.revision}
	if f.all {
		r.usage.loads.Add(1)
		st.objects, st.bytes = f.objects, f.bytes
		r.usage.charge(float64(f.objects.All().Len()))
	}
	r.config.Metrics.Loaded(time.Since(f.began))
	next, events := st.after(&r.decoder, changes, revision)
	r.published.begin(f.revision, next, events, r.logLimit(next))
	r.afterPublish(events, revision)
	if !f.all {
		r.cache.background.spawn(func() { r.countAt(f.revision) })
	}
}

// installObjects makes a followed resource loaded. It returns false if the log does not reach back to the revision of the
// objects. The caller holds write.
func (r *Resource) installObjects(f fetchResult) bool {
	if r.published.state.Load().loaded {
		return true
	}
	next, ok := r.published.load(f)
	if !ok {
		return false
	}
	r.usage.loads.Add(1)
	r.usage.charge(float64(next.objects.All().Len()))
	r.checkedBytes = next.bytes
	r.published.replace(next, r.logLimit(next))
	r.resolver.start()
	return true
}
