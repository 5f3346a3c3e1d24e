package registry

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// A PastChange is a change of an object that the store keeps.
type PastChange struct {
	// Object is the object after the change, nil if it was deleted or cannot be read; then Err says why.
	Object   *cache.Object
	Err      error
	Revision int64
	// CreateRevision is the revision at which the object was made, 0 after a deletion.
	CreateRevision int64
	Deleted        bool
	// Time is zero if it is not known; then Author is empty.
	Time   time.Time
	Author Author
}

// ParseKey returns the resource, the namespace and the name that a key of the store is for; the name is empty if it is none of an
// object. A key of a resource that the registry does not have is taken for one of a custom resource.
func (g *Registry) ParseKey(key string) (gr schema.GroupResource, namespace, name string) {
	rest, ok := strings.CutPrefix(key, Root)
	if !ok {
		return gr, "", ""
	}
	parts := strings.Split(rest, "/")
	for n := min(len(parts)-1, 3); n > 0; n-- {
		if r := g.byPath[strings.Join(parts[:n], "/")]; r != nil {
			gr, parts = r.Kind.GroupResource(), parts[n:]
			if r.Kind.Namespaced != (len(parts) == 2) {
				return gr, "", ""
			}
			return gr, strings.Join(parts[:len(parts)-1], ""), parts[len(parts)-1]
		}
	}
	if len(parts) < 3 || len(parts) > 4 || !strings.Contains(parts[0], ".") {
		return gr, "", ""
	}
	return schema.GroupResource{Group: parts[0], Resource: parts[1]}, strings.Join(parts[2:len(parts)-1], ""), parts[len(parts)-1]
}

// EachKept calls yield with the stored value of every version of every object that is kept, and the revision of the version, until yield
// returns false. It may have the same version twice. What is written or given up meanwhile may be left out. A store that keeps no history
// has none.
func (r *Resource) EachKept(ctx context.Context, yield func(value []byte, revision int64) bool) error {
	history, ok := r.store.(storage.History)
	if !ok {
		return nil
	}
	const page = 500
	scope := r.scope("")
	floor := max(history.Floor(scope), 1)
	state := storage.RangeRequest{
		Start: r.prefix, End: storage.PrefixEnd(r.prefix), Revision: floor, Limit: page, Bytes: pastBytes, Uncounted: true,
	}
	for more := true; more; {
		result, err := history.RangeAt(ctx, scope, state)
		if err != nil {
			return err
		}
		for _, e := range result.Entries {
			if !yield(e.Value, e.ModRevision) {
				return nil
			}
			state.Start = e.Key + "\x00"
		}
		more = result.More
	}
	// Below the floor there may be versions of other objects than those that were given up, each before a change that the log has.
	asked := storage.ChangesRequest{Prefix: r.prefix, Limit: page}
	for more := true; more; {
		result, err := history.Changes(ctx, asked)
		if err != nil {
			return err
		}
		for _, c := range result.Changes {
			if c.Entry.ModRevision <= floor && c.Prev.ModRevision > 0 {
				before, _, err := history.Versions(ctx, storage.VersionsRequest{Key: c.Entry.Key, Before: c.Entry.ModRevision, Limit: 1})
				if err != nil {
					return err
				}
				for _, b := range before {
					if !b.Deleted && !yield(b.Entry.Value, b.Entry.ModRevision) {
						return nil
					}
				}
			}
			if !c.Deleted && !yield(c.Entry.Value, c.Entry.ModRevision) {
				return nil
			}
		}
		asked.After, more = result.Through, result.More
	}
	return nil
}

// pastBytes bounds the values that one call of Changes reads.
const pastBytes = 4 << 20

// MemoryOfChanges is about how many bytes one call of Changes takes at most, and DecodedMemory about how many times as much as its stored
// value an object takes that is decoded to a tree.
const MemoryOfChanges, DecodedMemory = pastBytes, 8

// Size returns the bytes of the stored value of the object, 0 if there is none.
func (c *PastChange) Size() int {
	if c.Object == nil {
		return 0
	}
	return len(c.Object.Data)
}

// Changes returns the changes of an object before a revision (0 is all), the newest first, at most limit, and fewer if they are large.
// more is true if there are older ones; then there are at least two. The object may be gone. A store that keeps no history has the
// versions that it has not compacted (storage.ReadVersions).
func (r *Resource) Changes(
	ctx context.Context, namespace, name string, before int64, limit int,
) (list []PastChange, more bool, err error) {
	key := r.Key(namespace, name)
	asked := storage.VersionsRequest{Key: r.prefix + key, Before: before, Limit: limit, Bytes: pastBytes}
	var versions []storage.Change
	if history, ok := r.store.(storage.History); ok {
		versions, more, err = history.Versions(ctx, asked)
	} else {
		versions, more, err = storage.ReadVersions(ctx, r.store, asked)
	}
	if err != nil {
		return nil, false, err
	}
	list = make([]PastChange, len(versions))
	for i, v := range versions {
		c := PastChange{
			Revision: v.Entry.ModRevision, CreateRevision: v.Entry.CreateRevision, Deleted: v.Deleted, Time: v.Time,
		}
		if c.Author, err = DecodeAuthor(v.By); err != nil {
			return nil, false, err
		}
		if !v.Deleted {
			c.Object, c.Err = r.objectOf(ctx, key, v.Entry.Value, v.Entry.ModRevision)
		}
		list[i] = c
	}
	return list, more, nil
}
