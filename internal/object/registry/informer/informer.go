// Package informer calls functions with the objects of a resource and their changes, so that
// state in memory, such as an index for authorization, stays up to date with them.
package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// retryAfter is the pause of an informer after a failure.
const retryAfter = time.Second

// unreadWait limits the time that an informer waits until unread objects can be read, for example for a KMS
// plug-in. It is the limit for all objects together at each start, and for each batch of changes. The default
// time-out of a plug-in is the same.
const unreadWait = 3 * time.Second

// errReadAgain makes an informer load all objects again.
var errReadAgain = errors.New("objects that could not be read may be readable now")

// catchUpWait bounds one read of a cursor that may have to catch up from the store.
const catchUpWait = 20 * time.Millisecond

// Change is an object's state after a change.
type Change struct {
	Namespace, Name string
	// Object is nil where the object is gone. It belongs to the receiver.
	Object registry.Object
	// Stored replaces Object if Options.Stored is set.
	Stored *cache.Object
}

// Options select what an Informer follows, and the functions that it calls.
type Options struct {
	Resource *registry.Resource
	// Reset is called with all objects: once before Start returns, and again if changes may have been missed.
	Reset func([]Change)
	// Apply is called with changes in their order, never concurrently with Reset or itself.
	Apply func([]Change)
	// Concerns reports whether an object, or its change from prev, is relevant; other objects are not decoded. prev is
	// nil for a new object. Removed objects are always relevant. nil means that all objects are.
	Concerns func(o, prev *cache.Object) bool
	// Stored means that changes have the objects as they are stored, undecoded, in Change.Stored.
	Stored bool
	Log    *slog.Logger
}

// Informer follows one resource.
type Informer struct {
	o Options
	// cursor is where Run begins. If it is nil, Run has to load the objects again. Only the
	// goroutine of Run uses it.
	cursor *cache.Cursor
	// missing has the objects that could not be read, by key. Only the goroutine of Run uses it.
	missing map[string]*cache.Object

	// applied is the revision up to which changes were applied. It is written while mu is held.
	applied atomic.Int64
	mu      sync.Mutex // guards moved
	moved   chan struct{}
}

// Background runs a function in the background until the server stops. It returns at once. name
// must be unique. When the server stops, it waits until the function has returned.
type Background func(name string, run func(ctx context.Context))

// Load loads the objects and calls Reset. The caller has to call Run then, or Close.
func Load(ctx context.Context, o Options) (*Informer, error) {
	f := &Informer{o: o, moved: make(chan struct{})}
	var err error
	if f.cursor, err = f.begin(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// Start loads the objects of several resources, and follows all of them in the background. The names of its runners
// begin with prefix. After an error nothing runs.
func Start(ctx context.Context, background Background, prefix string, options ...Options) ([]*Informer, error) {
	var all []*Informer
	for _, o := range options {
		f, err := Load(ctx, o)
		if err != nil {
			for _, f := range all {
				f.Close()
			}
			return nil, fmt.Errorf("%s: %w", o.Resource.Kind.Resource, err)
		}
		all = append(all, f)
	}
	for _, f := range all {
		background(prefix+f.o.Resource.Kind.Resource, f.Run)
	}
	return all, nil
}

// Close ends an informer that is not run.
func (i *Informer) Close() { i.cursor.Close() }

// begin loads all objects and returns a cursor to what follows.
func (i *Informer) begin(ctx context.Context) (*cache.Cursor, error) {
	view, err := i.o.Resource.Reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	var all []Change
	i.missing = map[string]*cache.Object{}
	reading := &patience{ctx: ctx}
	defer reading.end()
	if err := view.Ascend(ctx, "", "", 0, func(o *cache.Object) bool {
		all = i.append(reading, all, o, nil)
		return true
	}); err != nil {
		return nil, err
	}
	cursor, err := i.o.Resource.Reader.Watch(ctx, view.Revision(), cache.Interest{})
	if err != nil {
		return nil, err
	}
	i.o.Reset(all)
	i.advance(view.Revision())
	return cursor, nil
}

// Run follows the changes after Load until ctx ends or the store is closed. If it is called
// again, after a panic, it loads the objects first.
func (i *Informer) Run(ctx context.Context) {
	cursor, err := i.cursor, error(nil)
	i.cursor = nil
	for {
		if cursor != nil {
			err = i.follow(ctx, cursor)
		}
		if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
			return
		}
		if err != nil {
			i.o.Log.Warn("following a resource: starting over", "resource", i.o.Resource.Kind.GroupResource(), "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryAfter):
			}
		}
		cursor, err = i.begin(ctx)
	}
}

// follow applies the changes that the cursor returns until there is an error. It closes the cursor.
func (i *Informer) follow(ctx context.Context, cursor *cache.Cursor) error {
	defer cursor.Close()
	var changes []Change
	var look *time.Ticker // runs once an object is missing
	var tick <-chan time.Time
	for {
		if look == nil && len(i.missing) > 0 {
			look = time.NewTicker(retryAfter)
			defer look.Stop()
			tick = look.C
		}
		events, revision, err := cursor.NextOr(ctx, tick)
		if err != nil {
			return err
		}
		if i.found() {
			return errReadAgain
		}
		if len(events) == 0 {
			continue
		}
		clear(changes)
		changes = i.appendAll(ctx, changes[:0], events)
		if len(changes) > 0 {
			i.o.Apply(changes)
		}
		i.advance(revision)
	}
}

// found reports whether an object that was missing can be read now.
func (i *Informer) found() bool {
	for _, o := range i.missing {
		if o.Resolved() != o {
			return true
		}
	}
	return false
}

func (i *Informer) appendAll(ctx context.Context, changes []Change, events []*cache.Event) []Change {
	reading := &patience{ctx: ctx}
	defer reading.end()
	for _, e := range events {
		if e.Object == nil {
			delete(i.missing, e.Prev.Key)
			changes = append(changes, Change{Namespace: e.Prev.Namespace, Name: e.Prev.Name})
			continue
		}
		changes = i.append(reading, changes, e.Object, e.Prev)
	}
	return changes
}

// patience has the context for reading the unread objects of one batch. It ends unreadWait after
// the first of them, so that the waits for many objects do not add up.
type patience struct {
	ctx    context.Context
	cancel context.CancelFunc // nil until the first unread object
}

func (p *patience) forUnread() context.Context {
	if p.cancel == nil {
		p.ctx, p.cancel = context.WithTimeout(p.ctx, unreadWait)
	}
	return p.ctx
}

func (p *patience) end() {
	if p.cancel != nil {
		p.cancel()
	}
}

// append appends the change to o. An object that cannot be read is logged and treated as removed until it can be read.
func (i *Informer) append(reading *patience, changes []Change, o, prev *cache.Object) []Change {
	if i.o.Concerns != nil && !i.o.Concerns(o, prev) {
		return changes
	}
	change := Change{Namespace: o.Namespace, Name: o.Name}
	readable, err := o, error(nil)
	if o.Err() != nil {
		readable, err = i.o.Resource.Reader.Readable(reading.forUnread(), o)
	}
	switch {
	case err != nil:
	case i.o.Stored:
		change.Stored = readable
	default:
		change.Object, err = i.o.Resource.Decoder.Decode(reading.ctx, readable)
	}
	delete(i.missing, o.Key)
	if err != nil {
		i.missing[o.Key] = o
		change.Object = nil
		i.o.Log.Error("following a resource: an object cannot be read",
			"resource", i.o.Resource.Kind.GroupResource(), "namespace", o.Namespace, "name", o.Name, "error", err)
	}
	return append(changes, change)
}

func (i *Informer) advance(revision int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.applied.Store(max(revision, i.applied.Load()))
	close(i.moved)
	i.moved = make(chan struct{})
}

func (i *Informer) position() (int64, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.applied.Load(), i.moved
}

// SyncOwn waits until every write that this process has acknowledged before the call has been applied. It costs nothing
// when there is nothing to wait for. Writes of other processes on the same store are applied soon after.
func (i *Informer) SyncOwn(ctx context.Context) error {
	last := i.o.Resource.Reader.LastWrite()
	for i.applied.Load() < last {
		applied, moved := i.position()
		if applied >= last {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		}
	}
	return nil
}

// HasOwn reports whether every write that this process has acknowledged has been applied: SyncOwn would not wait.
func (i *Informer) HasOwn() bool { return i.applied.Load() >= i.o.Resource.Reader.LastWrite() }

// Sync waits until every write acknowledged before the call has been applied.
func (i *Informer) Sync(ctx context.Context) error {
	current, err := i.o.Resource.Reader.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	applied, _ := i.position()
	if applied >= current {
		return nil
	}
	last, err := i.lastChange(ctx, applied, current)
	if err != nil {
		return err
	}
	for {
		applied, moved := i.position()
		if applied >= last {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		}
	}
}

// lastChange returns the revision of the last change of the resource in (from, to], or from if there is none, so that
// the caller does not wait for revisions of other resources.
func (i *Informer) lastChange(ctx context.Context, from, to int64) (int64, error) {
	cursor, err := i.o.Resource.Reader.Watch(ctx, from, cache.Interest{})
	if err != nil {
		return 0, err
	}
	defer cursor.Close()
	now := make(chan time.Time)
	close(now)
	var tick <-chan time.Time = now // does not wait for events
	last := from
	for {
		events, revision, err := cursor.NextOr(ctx, tick)
		if err != nil {
			return 0, err
		}
		for _, e := range events {
			if e.Revision <= to {
				last = e.Revision
			}
		}
		if revision >= to {
			return last, nil
		}
		if len(events) == 0 {
			// The log no longer contains these changes, so the store is read.
			tick = time.After(catchUpWait)
		}
	}
}
