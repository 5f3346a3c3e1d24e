package cache

import (
	"context"
	"sync"
)

// sharedBytes bounds the objects of a shared read, in bytes.
const sharedBytes = 2 << 20

// sharedReads has the reads of objects at an old revision that are in progress, so that requests for the same
// objects share one read. Only the first sharedBytes of the objects are shared. A read is cancelled when no
// request waits for it any more.
type sharedReads struct {
	mu      sync.Mutex // guards running and sharedRead.users
	running map[sharedReadKey]*sharedRead
}

// sharedReadKey identifies a read: its revision, the first key, and the prefix of the keys.
type sharedReadKey struct {
	revision     int64
	from, prefix string
}

// sharedRead is one read in progress.
type sharedRead struct {
	users   int // number of requests that wait
	cancel  context.CancelFunc
	done    chan struct{} // closed at the end; the fields below are valid then
	objects []*Object
	more    bool // there may be others after these
	err     error
}

// objects returns the first objects of a view of an old revision, up to sharedBytes. The slice is shared and must
// not be changed. more is true if there may be further objects.
func (s *sharedReads) objects(ctx context.Context, v *View, from, prefix string) (_ []*Object, more bool, err error) {
	key := sharedReadKey{v.revision, from, prefix}
	s.mu.Lock()
	read := s.running[key]
	if read == nil {
		read = &sharedRead{done: make(chan struct{})}
		if !s.start(key, read, v) {
			s.mu.Unlock()
			return nil, false, v.resource.err()
		}
	}
	read.users++
	s.mu.Unlock()
	defer s.leave(key, read)
	select {
	case <-read.done:
		return read.objects, read.more, read.err
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
}

// start starts a read. It returns false if the cache is closed. The caller holds mu.
func (s *sharedReads) start(key sharedReadKey, read *sharedRead, v *View) bool {
	r := v.resource
	ctx, cancel := context.WithCancel(r.cache.background.ctx)
	read.cancel = cancel
	shared := *v
	if !r.cache.background.spawn(func() {
		defer close(read.done)
		size := 0
		read.err = shared.read(ctx, key.from, key.prefix, 0, func(o *Object) bool {
			read.objects = append(read.objects, o)
			size += len(o.Data)
			read.more = size >= sharedBytes
			return !read.more
		})
	}) {
		cancel()
		return false
	}
	if s.running == nil {
		s.running = make(map[sharedReadKey]*sharedRead)
	}
	s.running[key] = read
	return true
}

// leave removes a request from a read, and cancels the read if it was the last one.
func (s *sharedReads) leave(key sharedReadKey, read *sharedRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if read.users--; read.users == 0 {
		read.cancel()
		delete(s.running, key)
	}
}
