package storage

import (
	"context"
	"errors"
)

// ReadVersions is History.Versions of a store that keeps no history: it reads one version after the other, back to the compaction
// revision. Times and authors are not known. What was there before a key was deleted is searched for: it is found for certain if it was
// there for more revisions than it has been gone, or at the compaction revision.
func ReadVersions(ctx context.Context, s Store, r VersionsRequest) (list []Change, more bool, err error) {
	if r.Before == 1 {
		return nil, false, nil
	}
	size := 0
	for at := max(r.Before-1, 0); ; {
		c, err := lastChange(ctx, s, r.Key, at)
		if err != nil || c.Entry.ModRevision == 0 {
			if compacted := (*CompactedError)(nil); errors.As(err, &compacted) {
				err = nil // that is the end
			}
			return list, false, err
		}
		if len(list) >= r.Limit || r.Bytes > 0 && size >= r.Bytes && len(list) > 1 {
			return list, true, nil
		}
		list, size = append(list, c), size+len(c.Entry.Value)
		if at = c.Entry.ModRevision - 1; at == 0 {
			return list, false, nil
		}
	}
}

// lastChange returns the last change of a key up to a revision, 0 being the current one. The result has ModRevision 0 if there is none.
func lastChange(ctx context.Context, s Store, key string, revision int64) (c Change, err error) {
	e, absent, err := s.Get(ctx, key, revision)
	if err != nil || e.ModRevision != 0 {
		return Change{Event: Event{Entry: e}}, err
	}
	there := int64(0)
	for floor, back := int64(1), int64(1); there == 0; back *= 2 {
		at := max(absent-back, floor)
		e, _, err = s.Get(ctx, key, at)
		if compacted := (*CompactedError)(nil); errors.As(err, &compacted) && compacted.Compacted < absent {
			floor = compacted.Compacted
			at = floor
			e, _, err = s.Get(ctx, key, at)
		}
		switch {
		case err != nil || e.ModRevision == 0 && at == floor:
			return c, err
		case e.ModRevision == 0:
			absent = at
		default:
			there = at
		}
	}
	for absent-there > 1 {
		middle := there + (absent-there)/2
		if e, _, err = s.Get(ctx, key, middle); err != nil {
			return c, err
		}
		if e.ModRevision == 0 {
			absent = middle
		} else {
			there = middle
		}
	}
	return Change{Event: Event{Entry: Entry{Key: key, ModRevision: absent}, Deleted: true}}, nil
}
