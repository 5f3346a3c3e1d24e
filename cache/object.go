package cache

import (
	"strings"
	"sync/atomic"

	"github.com/keelson-dev/keelson/storage"
)

// Object is one object at one revision. It is immutable; encodings of it are kept beside it, see Resource.Form.
type Object struct {
	Key             string // below the resource's prefix: "namespace/name" or "name"
	Namespace, Name string // substrings of Key
	Revision        int64
	CreateRevision  int64
	Labels          []Label
	Fields          []string
	Data            []byte // the served bytes, resourceVersion included

	attached atomic.Pointer[attachment]
}

// Err says why the stored value could not be read when the object came to the cache;
// such an object has neither labels, fields nor data. It is nil for all others. See
// Resource.Readable.
func (o *Object) Err() error {
	if u := o.unread(); u != nil {
		return u.err
	}
	return nil
}

// read returns the object of a stored entry. like is another state of the same object, or nil; the two share the
// memory of the key.
func (r *Resource) read(e storage.Entry, like *Object) *Object {
	o := &Object{Revision: e.ModRevision, CreateRevision: e.CreateRevision}
	if like != nil {
		o.Key, o.Namespace, o.Name = like.Key, like.Namespace, like.Name
	} else {
		// A copy: the entry's key may be part of something larger.
		o.Key = strings.Clone(e.Key[len(r.config.Prefix):])
		o.Namespace, o.Name = r.names(o.Key)
	}
	h, err := r.config.Codec.Read(e.Key, e.Value, e.ModRevision)
	if err != nil {
		r.markUnread(o, e.Value, err)
		return o
	}
	o.Labels, o.Fields, o.Data = h.Labels, h.Fields, h.Data
	return o
}

// readLoose returns an object that the cache does not refer to. No forms of it are kept.
func (r *Resource) readDetached(e storage.Entry) *Object {
	o := r.read(e, nil)
	o.detach()
	return o
}

// free lets forms be kept with an object that is not in the cache, for as long as
// somebody has it. No budget knows them.
func (o *Object) allowUnbudgeted() {
	if !o.attached.CompareAndSwap(nil, unbudgetedAttachment) {
		o.attached.Load().encodings.Store(closedEncodings) // it could not be read
	}
}

func (o *Object) detach() {
	if !o.attached.CompareAndSwap(nil, closedAttachment) {
		o.attached.Load().encodings.Store(closedEncodings)
	}
}

// names splits a key below the prefix.
func (r *Resource) names(key string) (namespace, name string) {
	if r.config.Namespaced {
		if i := strings.IndexByte(key, '/'); i >= 0 {
			return key[:i], key[i+1:]
		}
	}
	return "", key
}

// Event is one change of one object.
type Event struct {
	Revision int64
	Object   *Object // after; nil if it was deleted
	Prev     *Object // before; nil if it was created

	resource *Resource
	// alone says that the log alone has Object: neither the objects that are held nor a
	// later event do. Guarded by Resource.mu.
	logOnly bool
	// prevAt is made on demand and shared. Once the event has left the log it
	// is gone, and what is made then is not shared.
	prevAt atomic.Pointer[Object]
}

// goneObject is the value of Event.prevAt for an event that has left the log.
var goneObject = new(Object)

// PrevAt returns the previous object with the event's revision: what a DELETED
// carries. The event must have a Prev.
func (e *Event) PrevAt() (*Object, error) {
	o := e.prevAt.Load()
	if o != nil && o != goneObject {
		return o, nil
	}
	p := e.Prev.Resolved()
	if err := p.Err(); err != nil {
		return nil, err
	}
	data, err := e.resource.config.Codec.Restamp(p.Data, e.Revision)
	if err != nil {
		return nil, err
	}
	o = &Object{
		Key: p.Key, Namespace: p.Namespace, Name: p.Name,
		Revision: e.Revision, CreateRevision: p.CreateRevision,
		Labels: p.Labels, Fields: p.Fields, Data: data,
	}
	if e.prevAt.CompareAndSwap(nil, o) {
		return o, nil
	}
	if other := e.prevAt.Load(); other != goneObject {
		return other, nil
	}
	o.detach()
	return o, nil
}

// object returns the object after the event, or before it for a deletion.
func (e *Event) latest() *Object {
	if e.Object != nil {
		return e.Object
	}
	return e.Prev
}

// release lets go of the forms that only the log kept alive.
func (e *Event) releaseEncodings() {
	if e.Prev != nil {
		e.resource.cache.encodings.release(e.Prev)
	}
	if o := e.prevAt.Swap(goneObject); o != nil && o != goneObject {
		e.resource.cache.encodings.release(o)
	}
}
