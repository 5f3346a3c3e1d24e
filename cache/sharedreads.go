package cache

import (
	"context"
	"sync"
)

// scans has the reads of whole old states that are under way, so that those who ask
// for the same one share it. A read ends when all who wait for it are gone.
type sharedReads struct {
	mu      sync.Mutex // guards running and its members' users
	running map[sharedReadKey]*sharedRead
}

type sharedReadKey struct {
	revision     int64
	from, prefix string
}

type sharedRead struct {
	users   int
	cancel  context.CancelFunc
	done    chan struct{} // closed at the end; what follows is valid then
	objects []*Object
	err     error
}

// all returns all objects of a view of an old state, shared with others.
func (s *sharedReads) objects(ctx context.Context, v *View, from, prefix string) ([]*Object, error) {
	key := sharedReadKey{v.revision, from, prefix}
	s.mu.Lock()
	read := s.running[key]
	if read == nil {
		read = &sharedRead{done: make(chan struct{})}
		if !s.start(key, read, v) {
			s.mu.Unlock()
			return nil, v.resource.err()
		}
	}
	read.users++
	s.mu.Unlock()
	defer s.leave(key, read)
	select {
	case <-read.done:
		return read.objects, read.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin starts a read; false if the cache is closed. The caller holds mu.
func (s *sharedReads) start(key sharedReadKey, read *sharedRead, v *View) bool {
	r := v.resource
	ctx, cancel := context.WithCancel(r.cache.background.ctx)
	read.cancel = cancel
	shared := *v
	if !r.cache.spawn(func() {
		defer close(read.done)
		read.err = shared.read(ctx, key.from, key.prefix, 0, func(o *Object) bool {
			read.objects = append(read.objects, o)
			return true
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

// leave ends a read that nobody waits for any more.
func (s *sharedReads) leave(key sharedReadKey, read *sharedRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if read.users--; read.users == 0 {
		read.cancel()
		delete(s.running, key)
	}
}
