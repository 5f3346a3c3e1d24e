package cache

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache/index"
)

// decoder makes the objects of one resource from stored values, and the sets that hold them. It is set when the
// resource is made, and its methods may be called concurrently.
type decoder struct {
	config    *Config
	encodings *encodingBudget
	logger    *slog.Logger
}

// read returns the object of a stored entry. like is another revision of the same object, or nil. If it is not
// nil, both objects share the memory of the key.
func (d *decoder) read(e storage.Entry, like *Object) *Object {
	o := &Object{Revision: e.ModRevision, CreateRevision: e.CreateRevision}
	if like != nil {
		o.Key, o.Namespace, o.Name = like.Key, like.Namespace, like.Name
	} else {
		// The key is copied because it may be a slice of a larger buffer.
		o.Key = strings.Clone(e.Key[len(d.config.Prefix):])
		o.Namespace, o.Name = d.names(o.Key)
	}
	h, err := d.config.Codec.Read(e.Key, e.Value, e.ModRevision)
	if err != nil {
		d.markUnread(o, e.Value, err)
		return o
	}
	o.Labels, o.Fields, o.Data = h.Labels, h.Fields, h.Data
	return o
}

// readDetached returns an object that belongs to its caller and not to the cache. Its encodings are not cached.
func (d *decoder) readDetached(e storage.Entry) *Object {
	o := d.read(e, nil)
	o.detach()
	return o
}

// names splits a key below the prefix.
func (d *decoder) names(key string) (namespace, name string) {
	if d.config.Namespaced {
		if i := strings.IndexByte(key, '/'); i >= 0 {
			return key[:i], key[i+1:]
		}
	}
	return "", key
}

// markUnread makes o an unread object with its stored value and the error of reading it.
func (d *decoder) markUnread(o *Object, value []byte, err error) {
	// The value is copied because it may be a slice of a larger buffer, which would stay in memory.
	u := &unread{value: bytes.Clone(value), err: err}
	if !errors.As(err, &u.pending) {
		d.logger.Error("cache: a stored object cannot be read",
			"key", d.config.Prefix+o.Key, "revision", o.Revision, "error", err)
	}
	o.attached.Store(&attachment{unread: u})
}

// readAgain reads an unread object and stores the result in unread.resolved.
func (d *decoder) readAgain(o *Object) (*Object, error) {
	u := o.unread()
	h, err := d.config.Codec.Read(d.config.Prefix+o.Key, u.value, o.Revision)
	if err != nil {
		return nil, err
	}
	object := &Object{
		Key: o.Key, Namespace: o.Namespace, Name: o.Name,
		Revision: o.Revision, CreateRevision: o.CreateRevision,
		Labels: h.Labels, Fields: h.Fields, Data: h.Data,
	}
	if !u.resolved.CompareAndSwap(nil, object) {
		return u.resolved.Load(), nil
	}
	// If o has left the cache, no encodings must be cached with the readable object. A release of o after this
	// line sees u.resolved.
	if o.attached.Load().encodings.Load() == closedEncodings {
		d.encodings.release(object)
	}
	return object, nil
}

// newObjectSet returns an empty set for the resource, with its indexes and one more that lists the unread objects.
func (d *decoder) newObjectSet() index.Set[*Object] {
	n := len(d.config.Indexes) + 1
	listed := make([]string, n)
	for i := range listed {
		listed[i] = unreadField
	}
	return index.NewSet(n, func(o *Object) []string {
		if o.unread() != nil {
			return listed
		}
		return o.Fields
	})
}

// unreadObjects returns the unread objects of a set that was made from newObjectSet.
func (d *decoder) unreadObjects(objects index.Set[*Object]) index.Tree[*Object] {
	return objects.WithField(len(d.config.Indexes), unreadField)
}
