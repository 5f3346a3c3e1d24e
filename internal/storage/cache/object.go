package cache

import (
	"sync/atomic"

	"github.com/keelson-dev/keelson/internal/storage/cache/interest"
)

// Object is one object at one revision. It is immutable; encodings of it are cached with it, see Resource.Encoded.
type Object struct {
	Key             string // below the resource's prefix: "namespace/name" or "name"
	Namespace, Name string // substrings of Key
	Revision        int64
	CreateRevision  int64
	Labels          []Label
	Fields          []string
	Data            []byte // the served bytes in the stored encoding, resourceVersion included

	attached atomic.Pointer[attachment]
}

// Err returns the error with which the stored value could not be read when the object came to the cache. Such an object
// has no labels, fields or data; Resource.Readable tries to read it again. Err returns nil for all other objects.
func (o *Object) Err() error {
	if u := o.unread(); u != nil {
		return u.err
	}
	return nil
}

// allowUnbudgeted lets an object that the cache does not refer to keep its encodings as long as the object is in
// use. The budget does not count them.
func (o *Object) allowUnbudgeted() {
	if !o.attached.CompareAndSwap(nil, unbudgetedAttachment) {
		o.attached.Load().encodings.Store(closedEncodings) // it could not be read
	}
}

// IsKept reports whether the cache refers to o. If not, o was read for its caller only, from the store or its
// history, or it has left the cache.
func (o *Object) IsKept() bool {
	a := o.attached.Load()
	return a == nil || !a.unbudgeted && a.encodings.Load() != closedEncodings
}

// detach prevents that encodings are cached with o.
func (o *Object) detach() {
	if !o.attached.CompareAndSwap(nil, closedAttachment) {
		o.attached.Load().encodings.Store(closedEncodings)
	}
}

// Event is one change of one object.
type Event struct {
	Revision int64
	Object   *Object // after; nil if it was deleted
	Prev     *Object // before; nil if it was created

	decoder *decoder // of its resource
	// logOnly means that only the log refers to Object: it is neither among the loaded objects nor in a later
	// event. It is guarded by published.mu.
	logOnly bool
	// prevAt is the result of PrevAt, which the first call creates and later calls share. After the event has left
	// the log, it is goneObject, and each call of PrevAt creates a result of its own.
	prevAt atomic.Pointer[Object]
}

// goneObject is the value of Event.prevAt for an event that has left the log.
var goneObject = new(Object)

// PrevAt returns the previous object with the revision of the event, as a DELETED event contains it. The event must
// have a Prev. The error is the one of reading the previous object or of Codec.Restamp.
func (e *Event) PrevAt() (*Object, error) {
	o := e.prevAt.Load()
	if o != nil && o != goneObject {
		return o, nil
	}
	p := e.Prev.Resolved()
	if err := p.Err(); err != nil {
		return nil, err
	}
	data, err := e.decoder.config.Codec.Restamp(p.Data, e.Revision)
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

// cost returns the number of bytes that the event adds to the size of the log: the memory that is in use only
// because of the event. That is the previous object with its encodings, a second copy of the previous object for a
// deletion (see PrevAt), and the object itself if the objects are not loaded.
func (e *Event) cost() int64 {
	n := int64(eventOverhead)
	if e.Prev != nil {
		n += e.Prev.size() + e.Prev.encodingBytes()
		if e.Object == nil {
			n += e.Prev.size()
		}
	}
	if e.logOnly {
		n += objectOverhead + e.Object.size()
	}
	return n
}

// subject returns the properties of the event by which package interest finds the cursors.
func (e *Event) subject() interest.Subject {
	o := e.latest()
	s := interest.Subject{Key: o.Key, Namespace: o.Namespace, Name: o.Name}
	if e.Prev != nil {
		s.Old, s.Unreadable = e.Prev.Fields, e.Prev.Err() != nil
	}
	if e.Object != nil {
		s.New = e.Object.Fields
		s.Unreadable = s.Unreadable || e.Object.Err() != nil
	}
	return s
}

// latest returns the object after the event, or for a deletion the one before it.
func (e *Event) latest() *Object {
	if e.Object != nil {
		return e.Object
	}
	return e.Prev
}

// releaseEncodings drops the encodings of the objects that only the log kept in memory.
func (e *Event) releaseEncodings() {
	if e.Prev != nil {
		e.decoder.encodings.release(e.Prev)
	}
	if o := e.prevAt.Swap(goneObject); o != nil && o != goneObject {
		e.decoder.encodings.release(o)
	}
}

// objectOverhead is charged for a loaded object in addition to its data: the Object, its labels and fields, and its
// entries in the trees.
const objectOverhead = 400

// memoryBytes returns the memory of a loaded object without its encodings; 0 for nil.
func (o *Object) memoryBytes() int64 {
	if o == nil {
		return 0
	}
	return objectOverhead + int64(len(o.Key)) + o.size()
}
