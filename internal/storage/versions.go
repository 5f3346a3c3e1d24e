package storage

import (
	"context"
	"errors"
)

// maxProbes bounds the number of reads in which one call of ReadVersions searches for deletions.
const maxProbes = 500

// ReadVersions does what History.Versions does, for a store that keeps no history. It reads one version after the
// other, back to the compaction revision. Times and authors are not known. Where the key is absent, it searches
// for earlier versions. It always finds a version that existed for more revisions than the key has been absent,
// and a version that existed at the compaction revision. It may miss others. After maxProbes reads the result ends
// early.
func ReadVersions(ctx context.Context, s Store, r VersionsRequest) (list []Change, more bool, err error) {
	at, size, probes := r.Before-1, 0, 0
	switch {
	case r.Before == 1:
		return nil, false, nil
	case r.Before == 0:
		at = 0
	}
	for {
		e, found, err := s.Get(ctx, r.Key, at)
		if future := (*FutureRevisionError)(nil); errors.As(err, &future) && at == r.Before-1 {
			e, found, err = s.Get(ctx, r.Key, 0)
		}
		c := Change{Event: Event{Entry: e}}
		if err == nil && e.ModRevision == 0 {
			search := deletionSearch{store: s, key: r.Key, probes: probes}
			c, err = search.before(ctx, found)
			probes = search.probes
		}
		if err != nil || c.Entry.ModRevision == 0 {
			if compacted := (*CompactedError)(nil); errors.As(err, &compacted) {
				err = nil // older versions are compacted; the list is complete
			}
			return list, false, err
		}
		if len(list) >= r.Limit || len(list) > 1 && (r.Bytes > 0 && size >= r.Bytes || probes >= maxProbes) {
			return list, true, nil
		}
		list, size = append(list, c), size+len(c.Entry.Value)
		if at = c.Entry.ModRevision - 1; at == 0 {
			return list, false, nil
		}
	}
}

// deletionSearch looks for the deletion of a key.
type deletionSearch struct {
	store  Store
	key    string
	probes int // number of reads so far
}

// there reports whether the key existed at a revision.
func (d *deletionSearch) there(ctx context.Context, revision int64) (bool, error) {
	d.probes++
	result, err := d.store.Range(ctx, RangeRequest{Start: d.key, End: d.key + "\x00", Revision: revision, CountOnly: true})
	return result.Count > 0, err
}

// before returns the last deletion of the key before the revision absent, at which the key does not exist. The
// result has ModRevision 0 if no deletion is found.
func (d *deletionSearch) before(ctx context.Context, absent int64) (c Change, err error) {
	there := int64(0)
	for floor, back := int64(1), int64(1); there == 0; back *= 2 {
		at := max(absent-back, floor)
		was, err := d.there(ctx, at)
		for compacted := (*CompactedError)(nil); errors.As(err, &compacted); {
			if compacted.Compacted <= floor || compacted.Compacted >= absent {
				return c, nil
			}
			floor = compacted.Compacted
			at = floor
			was, err = d.there(ctx, at)
		}
		switch {
		case err != nil || !was && at == floor:
			return c, err
		case was:
			there = at
		default:
			absent = at
		}
	}
	for absent-there > 1 {
		middle := there + (absent-there)/2
		switch was, err := d.there(ctx, middle); {
		case err != nil:
			return c, err
		case was:
			there = middle
		default:
			absent = middle
		}
	}
	return Change{Event: Event{Entry: Entry{Key: d.key, ModRevision: absent}, Deleted: true}}, nil
}
