package cache

import (
	"context"
	"sync"
)

// scans has the reads of whole old states that are under way, so that those who ask
// for the same one share it. A read ends when all who wait for it are gone.
type scans struct {
	mu      sync.Mutex // guards running and its members' users
	running map[scanKey]*scanned
}

type scanKey struct {
	revision     int64
	from, prefix string
}

type scanned struct {
	users   int
	cancel  context.CancelFunc
	done    chan struct{} // closed at the end; what follows is valid then
	objects []*Object
	err     error
}

// all returns all objects of a view of an old state, shared with others.
func (s *scans) all(ctx context.Context, v *View, from, prefix string) ([]*Object, error) {
	key := scanKey{v.revision, from, prefix}
	s.mu.Lock()
	one := s.running[key]
	if one == nil {
		one = &scanned{done: make(chan struct{})}
		if !s.begin(key, one, v) {
			s.mu.Unlock()
			return nil, v.resource.err()
		}
	}
	one.users++
	s.mu.Unlock()
	defer s.leave(key, one)
	select {
	case <-one.done:
		return one.objects, one.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin starts a read; false if the cache is closed. The caller holds mu.
func (s *scans) begin(key scanKey, one *scanned, v *View) bool {
	r := v.resource
	ctx, cancel := context.WithCancel(r.cache.ctx)
	one.cancel = cancel
	shared := *v
	if !r.cache.spawn(func() {
		defer close(one.done)
		one.err = shared.read(ctx, key.from, key.prefix, 0, func(o *Object) bool {
			one.objects = append(one.objects, o)
			return true
		})
	}) {
		cancel()
		return false
	}
	if s.running == nil {
		s.running = make(map[scanKey]*scanned)
	}
	s.running[key] = one
	return true
}

// leave ends a read that nobody waits for any more.
func (s *scans) leave(key scanKey, one *scanned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.users--; one.users == 0 {
		one.cancel()
		delete(s.running, key)
	}
}
