package cache

import (
	"context"
	"sync/atomic"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache/index"
)

// If a stored value cannot be read, most often because the key with which it is encrypted is not available, the
// cache stores an unread object: the stored bytes and the error. Operations on other objects never wait for it.
// The cache tries to read it again in two ways:
//
//   - A request calls Resource.Readable, which waits for the key.
//   - The resolver of the resource, a goroutine that runs while the resource has unread objects, obtains what they
//     need, with growing pauses between attempts.
//
// The readable object is stored in unread.resolved, for events and snapshots that refer to the unread object. The
// resolver also replaces the unread object in the tree, where an additional index lists the unread objects.

// unread is the stored value of an object that could not be read. Only resolved changes.
type unread struct {
	value    []byte                 // as stored
	err      error                  // why it could not be read
	pending  *storage.PendingError  // the call that is needed to read it; nil if that is not known
	resolved atomic.Pointer[Object] // the readable object, after it was read
}

// unread returns the stored value of an unread object, or nil for others.
func (o *Object) unread() *unread {
	if k := o.attached.Load(); k != nil {
		return k.unread
	}
	return nil
}

// size returns how many bytes of its value an object keeps in memory.
func (o *Object) size() int64 {
	if u := o.unread(); u != nil {
		return int64(len(u.value))
	}
	return int64(len(o.Data))
}

// Resolved returns the readable object that has replaced the unread o, or o if there is none.
func (o *Object) Resolved() *Object {
	if u := o.unread(); u != nil {
		if resolved := u.resolved.Load(); resolved != nil {
			return resolved
		}
	}
	return o
}

// Readable returns o if it is readable. If o is unread, it obtains what the codec needs, waiting until ctx ends, and
// returns the readable object. The error comes from the codec, or from obtaining what it needs.
func (r *Resource) Readable(ctx context.Context, o *Object) (*Object, error) {
	return r.resolver.readable(ctx, o)
}

// unreadField is the value that the indexes have for all fields of an unread object. No field can have this text.
// It is in all indexes, so that the cost of an index does not depend on the number of unread objects.
const unreadField = "\x00unread"

// Unread returns the number of objects in the snapshot that could not be read when it was taken. They are in no
// index of a field, and are left out of the encodings of chunks.
func (s Snapshot) Unread() int {
	if s.objects.All().Len() == 0 {
		return 0
	}
	return s.objects.WithField(len(s.indexes), unreadField).Len()
}

// Unread returns how many of the loaded objects are unread now.
func (r *Resource) Unread() int { return r.unread().Len() }

// unread returns the loaded objects that are unread.
func (r *Resource) unread() (none index.Tree[*Object]) {
	if st := r.published.state.Load(); st != nil && st.loaded {
		return r.decoder.unreadObjects(st.objects)
	}
	return none
}

// replaceUnread replaces unread objects by their readable ones, if they are still loaded.
func (r *Resource) replaceUnread(resolved map[*Object]*Object) {
	if len(resolved) == 0 {
		return
	}
	r.write.Lock()
	defer r.write.Unlock()
	if st := r.published.state.Load(); st != nil && st.loaded {
		r.published.amend(st.withReadable(resolved))
	}
}

// RetryUnread makes the resolvers try all unread objects again soon, in the background, because what they need may be
// available now.
func (c *Cache) RetryUnread() {
	for _, r := range c.all() {
		r.resolver.wake(true)
	}
}
