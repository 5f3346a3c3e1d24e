// Package cache keeps the objects of resources in memory, in the encoding in which they are served, together with a
// log of their recent changes.
//
// One watch of the store delivers the changes of all resources. The cache follows a resource from its first use
// on: it appends its changes to a log (package window), and a watcher is a cursor into that log that is woken only
// by events that it is interested in (package interest). The objects of a resource are held in a copy-on-write
// tree (package index) if they are few or are read often (see Memory); otherwise they are read from the store.
// Readers take a View, which hides this difference, and hold no lock while they use it.
//
// Files, in the order to read them:
//
//   - cache.go: Cache and its configuration; feed.go: the watch of the store that feeds it; background.go: its goroutines.
//   - object.go: Object and Event; decoder.go: objects from stored values; storereader.go: reads of the store.
//   - unread.go: objects whose stored value cannot be read; resolver.go: how they become readable.
//   - resource.go: Resource, and how it receives changes; state.go: a resource at one revision; published.go: the state and
//     the log, which readers and watchers see; load.go: loading its objects; usage.go, memory.go and demand.go: whether its
//     objects are in memory.
//   - view.go and snapshot.go: reading; count.go: the number of objects after a page; sharedreads.go: reads of old
//     revisions that requests share.
//   - cursor.go: watching; catchup.go: watching from a revision before the log.
//   - encodings.go and chunks.go: cached encodings of objects and of chunks of lists.
package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

const (
	// Root is the prefix of every key that the cache sees.
	Root = "/registry/"

	// DefaultBudget is the default of Options.Budget, in bytes.
	DefaultBudget = 1 << 30
	// mostWindowBytes bounds the log of a resource, however large the budget is.
	mostWindowBytes = 32 << 20
)

// ErrRemoved is the error of cursors of a resource that was removed.
var ErrRemoved = errors.New("cache: the resource was removed")

// Codec decodes the stored values of one resource. Its methods may be called concurrently and should not decode
// whole objects.
type Codec interface {
	// Read decodes a stored value. key is the whole key in the store. The result may share memory with value. If Read
	// fails, the cache stores an unread object, see Object.Err, and tries again later.
	//
	// Read must not wait for another program, because the changes of all resources wait while it runs. If Read
	// needs something from another program, such as a key of a KMS plug-in, it returns an error that wraps a
	// *storage.PendingError. The cache calls Obtain of that error, and then calls Read again.
	Read(key string, value []byte, revision int64) (Header, error)
	// Restamp returns a copy of data, as made by Read, with another
	// resourceVersion.
	Restamp(data []byte, revision int64) ([]byte, error)
}

// Header is the decoded part of an object that the cache needs.
type Header struct {
	Labels []Label  // sorted by key; interned by the codec
	Fields []string // values of the indexed fields, in the order of Config.Indexes
	Data   []byte   // the served bytes in the stored encoding, resourceVersion included
}

// Label is one label of an object.
type Label struct{ Key, Value string }

// Config describes one resource.
type Config struct {
	Resource   string   // names the resource in errors and metrics
	Prefix     string   // of its keys in the store, such as "/registry/pods/"
	Namespaced bool     // keys below Prefix are "namespace/name", not "name"
	Indexes    []string // names of the indexed fields
	Codec      Codec
	Metrics    *Stored // nil records nothing
}

// Options configure a Cache.
type Options struct {
	Store storage.Store
	// Budget bounds the memory of the cache, in bytes; 0 means DefaultBudget. Half of it is for objects, three eighths for
	// encodings of objects and of chunks, and an eighth for logs. Data that does not fit is dropped: then objects are read from
	// the store, encodings are made again, and watches catch up from the store.
	Budget int64
	// EncodingBudget bounds the cached encodings of the objects of all resources, in bytes; 0 means a third of Budget.
	// The encodings of chunks may take an eighth of it in addition.
	EncodingBudget int64
	// WindowBytes bounds the memory that the log of a resource keeps in use, in bytes; 0 means a sixteenth of Budget, at
	// most 32 MiB. The events of the last revision are always kept.
	WindowBytes int64
	// CatchUp limits the number of open streams of old changes. The caches of a process can share one; nil makes
	// one for this cache only.
	CatchUp *CatchUp
	// Memory selects the resources whose objects are in memory.
	Memory Memory
	// IdleDrop is the time after which a resource that is neither read nor watched is dropped from memory,
	// including its log. It may take up to twice this time; 0 means never.
	IdleDrop time.Duration
	// Metrics are the metrics of the watch of the store, which is shared by all resources; nil records nothing.
	Metrics *Stored
	Logger  *slog.Logger
}

func (o *Options) budget() int64 {
	if o.Budget <= 0 {
		return DefaultBudget
	}
	return o.Budget
}

// ProgressRequester is an optional interface of a storage.Watcher. It requests a batch, possibly empty, that moves
// the revision of the watcher to the current one of the store. The cache calls it when a reader waits for a
// revision, because a store that others write to may advance without changes for this cache.
type ProgressRequester interface {
	RequestProgress()
}

// Cache holds resources of one store. All methods may be called concurrently.
type Cache struct {
	store       storage.Store
	windowBytes int64
	budget      int64 // in bytes, returned by Usage
	logs        logBudget
	memory      Memory
	// droppedBytes is the memory of all objects that were dropped since New, see dropObjects.
	droppedBytes atomic.Int64
	logger       *slog.Logger
	metrics      *Stored
	encodings    encodingBudget
	chunks       chunkBudget
	catchUp      *CatchUp
	remaining    remainingCounts

	feed       feed
	background background

	mu        sync.RWMutex              // guards resources, maxDepth and removed
	resources map[string]*Resource      // by prefix
	maxDepth  int                       // highest number of slashes in a prefix
	removed   map[*Resource]*time.Timer // removed resources whose logs are still kept; the timer drops the log
}

// feed is the state of the goroutine that reads the changes of the store and applies them to the resources, see
// runFeed.
type feed struct {
	// started is closed when the first revision is known, or reading it has failed.
	started chan struct{}
	// applied is the revision up to which all changes are in all followed and loaded resources.
	applied atomic.Int64
	waiters waiters
	watch   atomic.Pointer[storage.Watcher] // the open watch of the store; nil if there is none
	failed  atomic.Pointer[error]           // the error that ended the cache; nil while it runs
}

// New starts a cache. The caller must call Close.
func New(o Options) *Cache {
	c := &Cache{
		store:       o.Store,
		metrics:     o.Metrics,
		windowBytes: o.WindowBytes,
		memory:      o.Memory.withDefaults(o.budget()),
		logger:      o.Logger,
		feed:        feed{started: make(chan struct{})},
		resources:   make(map[string]*Resource),
		removed:     make(map[*Resource]*time.Timer),
	}
	c.background.ctx, c.background.cancel = context.WithCancel(context.Background())
	if c.catchUp = o.CatchUp; c.catchUp == nil {
		c.catchUp = NewCatchUp(0)
	}
	if c.windowBytes <= 0 {
		c.windowBytes = min(o.budget()/16, mostWindowBytes)
	}
	c.budget = o.budget()
	c.logs.limit, c.logs.over = c.budget/8, make(chan struct{}, 1)
	c.logs.most.Store(c.windowBytes)
	c.logs.next.Store(c.logs.limit)
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	c.encodings.limit = o.EncodingBudget
	if c.encodings.limit <= 0 {
		c.encodings.limit = o.budget() / 3
	}
	c.chunks.limit = c.encodings.limit / 8
	c.background.tasks.Go(c.runFeed)
	c.background.tasks.Go(func() { c.dropUnused(o.IdleDrop) })
	return c
}

// Close stops the cache. Waiting readers and cursors end with storage.ErrClosed. It does not close the store.
func (c *Cache) Close() {
	c.fail(storage.ErrClosed)
	c.background.stop()
	c.mu.Lock()
	removed := c.removed
	c.removed = nil
	c.mu.Unlock()
	for r, timer := range removed {
		timer.Stop()
		r.published.dropLog()
	}
	c.background.tasks.Wait()
}

// keepRemoved keeps the log of a removed resource for removedGrace. The caller does not hold c.mu or r.mu.
func (c *Cache) keepRemoved(r *Resource) {
	c.mu.Lock()
	closed := c.removed == nil
	if !closed {
		c.removed[r] = time.AfterFunc(removedGrace, func() {
			c.mu.Lock()
			delete(c.removed, r)
			c.mu.Unlock()
			r.published.dropLog()
		})
	}
	c.mu.Unlock()
	if closed {
		r.published.dropLog()
	}
}

// keptRemoved returns the removed resources whose logs are kept.
func (c *Cache) keptRemoved() []*Resource {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.removed))
}

// Resource returns the resource with the prefix of the configuration, and creates it if there is none. An existing
// resource keeps its configuration. Resource loads nothing.
func (c *Cache) Resource(config Config) *Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.resources[config.Prefix]; r != nil {
		return r
	}
	r := newResource(c, config)
	c.resources[config.Prefix] = r
	c.maxDepth = max(c.maxDepth, slashes(config.Prefix))
	return r
}

// Remove removes a resource. Later calls fail with ErrRemoved. Its cursors first return the events that are in the
// log, and then fail with ErrRemoved. A later call of Resource with the same prefix creates a new resource.
func (c *Cache) Remove(prefix string) {
	c.mu.Lock()
	r := c.resources[prefix]
	if r != nil {
		// This is set before the resource is deleted from the map, so that a reader of a revision that the feed applied
		// without this resource sees that the resource was removed.
		r.ended.CompareAndSwap(nil, &ErrRemoved)
	}
	delete(c.resources, prefix)
	c.mu.Unlock()
	if r != nil {
		r.end(ErrRemoved)
	}
}

// Current returns the current revision of the store, for a read that must return everything that was committed
// before it began.
func (c *Cache) Current(ctx context.Context) (int64, error) {
	if err := c.err(); err != nil {
		return 0, err
	}
	return c.store.Revision(ctx)
}

// Await waits until a revision is applied to the cache. If the deadline of ctx passes first and the store has not
// reached the revision, the error is a *storage.FutureRevisionError. Otherwise it is the error of ctx.
func (c *Cache) Await(ctx context.Context, revision int64) error { return c.await(ctx, revision) }

// Applied returns the revision up to which the logs of all resources are complete.
func (c *Cache) Applied() int64 { return c.feed.applied.Load() }

// Usage is the memory of a cache in bytes, by purpose.
type Usage struct {
	Budget                   int64 // see Options.Budget
	Objects, Encodings, Logs int64
	// DroppedObjects and DroppedEncodings are the bytes that were dropped since New to make room. Objects are also
	// dropped if they are seldom read.
	DroppedObjects, DroppedEncodings int64
}

// Usage returns the memory that the cache uses. It is an estimate: the sizes of the encoded bytes, plus an assumed
// size of the structures around them.
func (c *Cache) Usage() Usage {
	return Usage{
		Budget: c.budget, Objects: c.loadedBytes(nil), Encodings: c.encodings.used.Load() + c.chunks.used.Load(),
		Logs: c.logs.used.Load(), DroppedObjects: c.droppedBytes.Load(), DroppedEncodings: c.encodings.dropped.Load(),
	}
}

// err returns the reason why the cache ended, nil while it runs.
func (c *Cache) err() error {
	if p := c.feed.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// fail ends the cache for all its users. Only the first error is kept.
func (c *Cache) fail(err error) {
	if !c.feed.failed.CompareAndSwap(nil, &err) {
		return
	}
	c.feed.waiters.fail()
	for _, r := range c.all() {
		r.end(err)
	}
}

// all returns the resources.
func (c *Cache) all() []*Resource {
	c.mu.RLock()
	defer c.mu.RUnlock()
	list := make([]*Resource, 0, len(c.resources))
	for _, r := range c.resources {
		list = append(list, r)
	}
	return list
}

// dropUnused drops resources and encodings that were not used for some time, until the cache is closed.
func (c *Cache) dropUnused(idle time.Duration) {
	const rest = 30 * time.Second
	every := rest
	if idle > 0 {
		every = min(every, idle)
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	seldom := time.NewTicker(5 * time.Second)
	defer seldom.Stop()
	unused := make(map[*Resource]time.Duration)
	var sinceExpiry time.Duration
	for {
		select {
		case <-c.background.ctx.Done():
			return
		case <-seldom.C:
			c.dropSeldomRead()
			c.trimLogs()
			continue
		case <-c.logs.over:
			c.trimLogs()
			continue
		case <-ticker.C:
		}
		all := c.all()
		if sinceExpiry += every; sinceExpiry >= unusedAfter {
			sinceExpiry = 0
			c.encodings.expire()
			c.chunks.expire()
			for _, r := range all {
				r.requests.rotate()
			}
		}
		seen := make(map[*Resource]time.Duration, len(all))
		for _, r := range all {
			if r.inUse() {
				seen[r] = 0
				continue
			}
			seen[r] = unused[r] + every
			if idle > 0 && seen[r] >= idle {
				r.drop()
			}
		}
		unused = seen
	}
}

// await waits until revision is applied. If the deadline of ctx passes first, the error reports whether the store has
// reached the revision.
func (c *Cache) await(ctx context.Context, revision int64) error {
	if c.feed.applied.Load() >= revision {
		return nil
	}
	w := c.feed.waiters.add(c, revision)
	if w == nil {
		return c.err()
	}
	// Usually the change arrives within a short time, without a progress request.
	timer := time.NewTimer(2 * time.Millisecond)
	defer timer.Stop()
	for {
		select {
		case <-w.ready:
			return c.err()
		case <-timer.C:
			c.requestProgress()
			timer.Reset(50 * time.Millisecond)
		case <-ctx.Done():
			c.feed.waiters.remove(w)
			return c.awaitError(ctx, revision)
		}
	}
}

// awaitError returns the error of a wait for revision that ended with ctx.
func (c *Cache) awaitError(ctx context.Context, revision int64) error {
	applied := c.feed.applied.Load()
	if applied >= revision {
		return nil
	}
	current := max(applied, c.store.Stats().Revision)
	if current >= revision || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("cache: waiting for revision %d, at %d: %w", revision, applied, ctx.Err())
	}
	return &storage.FutureRevisionError{Revision: revision, Current: current}
}

// requestProgress makes the store send its current revision, if its watches support that.
func (c *Cache) requestProgress() {
	if p := c.feed.watch.Load(); p != nil {
		if w, ok := (*p).(ProgressRequester); ok {
			w.RequestProgress()
		}
	}
}

// waiters are the readers that wait for a revision to be applied.
type waiters struct {
	mu   sync.Mutex // guards list
	list []*waiter
}

type waiter struct {
	revision int64
	ready    chan struct{} // closed when applied, or when the cache failed
}

// add adds a waiter for a revision. It returns nil if the revision is already applied or the cache has ended.
func (ws *waiters) add(c *Cache, revision int64) *waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	// This is checked under the lock, because advance changes applied before it reads the list.
	if c.feed.applied.Load() >= revision || c.err() != nil {
		return nil
	}
	w := &waiter{revision, make(chan struct{})}
	ws.list = append(ws.list, w)
	return w
}

// remove removes a waiter that does not wait any more.
func (ws *waiters) remove(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for i := range ws.list {
		if ws.list[i] == w {
			last := len(ws.list) - 1
			ws.list[i] = ws.list[last]
			ws.list[last] = nil
			ws.list = ws.list[:last]
			return
		}
	}
}

// wake wakes the readers that wait for a revision up to applied.
func (ws *waiters) wake(applied int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	rest := ws.list[:0]
	for _, w := range ws.list {
		if w.revision <= applied {
			close(w.ready)
		} else {
			rest = append(rest, w)
		}
	}
	clear(ws.list[len(rest):])
	ws.list = rest
}

// fail wakes all waiters after the cache has ended.
func (ws *waiters) fail() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.list {
		close(w.ready)
	}
	ws.list = nil
}
