package registry

import (
	"context"
	"errors"
	"time"

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

// Past finds what the objects of a resource were, if the store keeps that (storage.History).
type Past struct {
	*bound
	reader  *Reader
	history storage.History // nil if the store is none
}

// ErrNoHistory is the error of a read of the past from a store that knows no times.
var ErrNoHistory = errors.New("the store of the resource does not know what was written when")

// KeepsAuthors reports whether it is kept who made a change of the resource.
func (p *Past) KeepsAuthors() bool { return p.history != nil }

// View is Reader.Exactly for a revision that the store may have compacted, but still keeps. The view may be read in one namespace
// only, unless that is "".
func (p *Past) View(ctx context.Context, revision int64, namespace string) (*cache.View, error) {
	if err := p.reader.reached(ctx, revision); err != nil {
		return nil, err
	}
	return p.cache.ViewPast(ctx, revision, p.scope(namespace).Namespace)
}

// RevisionAt returns a revision at which the objects of a namespace ("" is all), or the object of a name, were as they were at t. It fails
// with *storage.CompactedError if that is not kept.
func (p *Past) RevisionAt(ctx context.Context, namespace, name string, t time.Time) (int64, error) {
	if p.history == nil {
		return 0, ErrNoHistory
	}
	scope := p.scope(namespace)
	if name != "" {
		scope.Prefix = p.prefix + p.key(namespace, name)
	}
	return p.history.RevisionAt(ctx, scope, t)
}

// EachKept calls yield with the stored value of every version of every object that is kept, and the revision of the version, until yield
// returns false. It may have the same version twice. What is written or given up meanwhile may be left out. A store that keeps no history
// has none.
func (p *Past) EachKept(ctx context.Context, yield func(value []byte, revision int64) bool) error {
	if p.history == nil {
		return nil
	}
	const page = 500
	scope := p.scope("")
	floor := max(p.history.Floor(scope), 1)
	state := storage.RangeRequest{
		Start: p.prefix, End: storage.PrefixEnd(p.prefix), Revision: floor, Limit: page, Bytes: pastBytes, Uncounted: true,
	}
	for more := true; more; {
		result, err := p.history.RangeAt(ctx, scope, state)
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
	asked := storage.ChangesRequest{Prefix: p.prefix, Limit: page}
	for more := true; more; {
		result, err := p.history.Changes(ctx, asked)
		if err != nil {
			return err
		}
		for _, c := range result.Changes {
			if c.Entry.ModRevision <= floor && c.Prev.ModRevision > 0 {
				before, _, err := p.history.Versions(ctx, storage.VersionsRequest{Key: c.Entry.Key, Before: c.Entry.ModRevision, Limit: 1})
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
func (p *Past) Changes(
	ctx context.Context, namespace, name string, before int64, limit int,
) (list []PastChange, more bool, err error) {
	key := p.key(namespace, name)
	asked := storage.VersionsRequest{Key: p.prefix + key, Before: before, Limit: limit, Bytes: pastBytes}
	var versions []storage.Change
	if p.history != nil {
		versions, more, err = p.history.Versions(ctx, asked)
	} else {
		versions, more, err = storage.ReadVersions(ctx, p.store, asked)
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
			c.Object, c.Err = p.objectOf(ctx, key, v.Entry.Value, v.Entry.ModRevision)
		}
		list[i] = c
	}
	return list, more, nil
}
