package registry

import (
	"context"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

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

// Past reads earlier states of the objects of a resource, if the store keeps them (storage.History).
type Past struct {
	*bound
	reader  *Reader
	history storage.History // nil if the store keeps no history
}

// ErrNoHistory is the error of a read of the past from a store that keeps no history.
var ErrNoHistory error = kerrors.NewBadRequest("this server does not keep what was changed, when and by whom (--local-state)")

// KeepsAuthors reports whether the store keeps who made a change of the resource.
func (p *Past) KeepsAuthors() bool { return p.history != nil }

// View is like Reader.Exactly, but revision may also be one that the store has compacted and still keeps. Unless
// namespace is "", only objects in this namespace may be read from the view.
func (p *Past) View(ctx context.Context, revision int64, namespace string) (*cache.View, error) {
	if err := p.reader.reached(ctx, revision); err != nil {
		return nil, err
	}
	return p.cache.ViewPast(ctx, revision, p.scope(namespace).Namespace)
}

// RevisionAt returns a revision at which the objects of a namespace ("" means all) had their state of the time t.
// If name is set, this is only true for the object of this name. It fails with *storage.CompactedError if that
// state is not kept.
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

// EachKept calls yield for every kept version of every object, with its stored value and revision, until yield
// returns false. It may call yield twice for the same version. Versions that are written or dropped during the
// call may be left out. If the store keeps no history, there are no versions.
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
	// Below the floor some versions may be kept: those of changes in the log, and the last ones before these.
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

// MemoryOfChanges is about the largest number of bytes that one call of Changes takes. DecodedMemory is about how
// many times the size of its stored value an object takes that is decoded to a tree.
const MemoryOfChanges, DecodedMemory = pastBytes, 8

// Size returns the bytes of the stored value of the object, 0 if there is none.
func (c *PastChange) Size() int {
	if c.Object == nil {
		return 0
	}
	return len(c.Object.Data)
}

// Changes returns the changes of an object before a revision (0 means all), the newest first. It returns at most
// limit changes, and fewer if they are large. more is true if there are older ones; then list has at least two.
// The object may have been deleted.
func (p *Past) Changes(
	ctx context.Context, namespace, name string, before int64, limit int,
) (list []PastChange, more bool, err error) {
	key := p.key(namespace, name)
	asked := storage.VersionsRequest{Key: p.prefix + key, Before: before, Limit: limit, Bytes: pastBytes}
	if p.history == nil {
		return nil, false, ErrNoHistory
	}
	versions, more, err := p.history.Versions(ctx, asked)
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
