package registry

import (
	"context"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// A PastChange is a change of an object that the store keeps.
type PastChange struct {
	// Object is the object after the change, nil if it was deleted or cannot be read; then Err says why.
	Object *cache.Object
	Err    error
	// Before is the revision of the version before, 0 if there was none or that is not known.
	Revision, Before int64
	// CreateRevision is the revision at which the object was made, 0 after a deletion.
	CreateRevision int64
	Deleted        bool
	// Time is zero if it is not known; then Author is empty.
	Time   time.Time
	Author Author
}

// Changes returns the changes of an object before a revision (0 is all), the newest first, at most limit. The object may be gone. It
// fails with ErrNoHistory if the store keeps none.
func (r *Resource) Changes(ctx context.Context, namespace, name string, before int64, limit int) ([]PastChange, error) {
	history, ok := r.store.(storage.History)
	if !ok {
		return nil, ErrNoHistory
	}
	key := r.Key(namespace, name)
	versions, err := history.Versions(ctx, r.prefix+key, before, limit)
	if err != nil {
		return nil, err
	}
	list := make([]PastChange, len(versions))
	for i, v := range versions {
		c := PastChange{
			Revision: v.Entry.ModRevision, CreateRevision: v.Entry.CreateRevision, Before: v.Prev.ModRevision, Deleted: v.Deleted, Time: v.Time,
		}
		if c.Author, err = DecodeAuthor(v.By); err != nil {
			return nil, err
		}
		if !v.Deleted {
			c.Object, c.Err = r.objectOf(ctx, key, v.Entry.Value, v.Entry.ModRevision)
		}
		list[i] = c
	}
	return list, nil
}
