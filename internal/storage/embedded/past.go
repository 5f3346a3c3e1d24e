package embedded

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

var _ storage.History = (*Store)(nil)

// Floor implements storage.History.
func (s *Store) Floor(scope storage.Scope) int64 { return s.compactor.floors.Load().of(scope).Revision }

// Kept implements storage.History.
func (s *Store) Kept() storage.Kept { return s.compactor.floors.Load().kept }

// errNoRevision is the error of a read of the past without a revision.
var errNoRevision = errors.New("embedded: a read of the past needs a revision")

// GetAt implements storage.History.
func (s *Store) GetAt(ctx context.Context, scope storage.Scope, key string, revision int64) (storage.Entry, error) {
	if revision == 0 {
		return storage.Entry{}, errNoRevision
	}
	e, _, err := s.reads.get(ctx, key, revision, func() int64 { return s.compactor.floors.Load().ofKey(scope, key).Revision })
	return e, err
}

// RangeAt implements storage.History.
func (s *Store) RangeAt(
	ctx context.Context, scope storage.Scope, r storage.RangeRequest,
) (storage.RangeResult, error) {
	if r.Revision == 0 {
		return storage.RangeResult{}, errNoRevision
	}
	return s.reads.getRange(ctx, r, func() int64 { return s.Floor(scope) })
}

// Versions implements storage.History. If the log has no operation for a version, the version has no time. This
// can only be the oldest version that is returned.
func (s *Store) Versions(
	ctx context.Context, r storage.VersionsRequest,
) (list []storage.Change, more bool, err error) {
	defer func() { err = asDamage(err) }()
	if err := validateKey(r.Key); err != nil {
		return nil, false, err
	}
	if err := s.lifetime.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.lifetime.leave()
	newest := s.hub.durable.Load()
	if r.Before > 0 {
		newest = min(newest, r.Before-1)
	}
	it, err := s.db.NewIterWithContext(ctx, nil)
	if err != nil {
		return nil, false, err
	}
	defer it.Close()
	logged, err := it.Clone(pebble.CloneOptions{})
	if err != nil {
		return nil, false, err
	}
	defer logged.Close()
	bytes := 0
	for ok := it.SeekPrefixGE(appendVersionKey(nil, r.Key, newest)); ok; ok = it.Next() {
		if len(list) >= r.Limit || r.Bytes > 0 && bytes >= r.Bytes && len(list) > 1 {
			return list, true, nil
		}
		v, _, err := currentVersion(it)
		if err != nil {
			return nil, false, err
		}
		c := storage.Change{Event: storage.Event{Entry: v.entry(r.Key), Deleted: v.tombstone}}
		if err := readOperation(logged, &c); err != nil {
			return nil, false, err
		}
		list, bytes = append(list, c), bytes+len(v.value)
	}
	return list, false, it.Error()
}

// readOperation sets the fields of a change that are in the log: the time, the author, and the previous version.
func readOperation(it *pebble.Iterator, c *storage.Change) error {
	want := logKey(c.Entry.ModRevision)
	if !it.SeekGE(want) || !bytes.Equal(it.Key(), want) {
		return it.Error()
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return err
	}
	w, _, err := cutWritten(value)
	if err != nil {
		return err
	}
	return decodeLog(value, func(key []byte, op logOp) error {
		if string(key) == c.Entry.Key {
			c.Time, c.By, c.Prev.ModRevision = w.time(), bytes.Clone(w.by), op.prev
		}
		return nil
	})
}

func (w written) time() time.Time {
	if w.ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(w.ms)
}

// Changes implements storage.History.
func (s *Store) Changes(ctx context.Context, r storage.ChangesRequest) (_ storage.ChangesResult, err error) {
	defer func() { err = asDamage(err) }()
	if err := s.lifetime.enter(ctx); err != nil {
		return storage.ChangesResult{}, err
	}
	defer s.lifetime.leave()
	through := s.hub.durable.Load()
	if r.Through > 0 {
		through = min(max(through, s.confirming.Load()), r.Through)
	}
	if !r.Since.IsZero() {
		before, err := s.db.loggedAt(ctx, r.Since.Add(-time.Millisecond), s.hub.durable.Load())
		if err != nil {
			return storage.ChangesResult{}, err
		}
		r.After = max(r.After, before)
	}
	it, err := s.db.NewIterWithContext(ctx, nil)
	if err != nil {
		return storage.ChangesResult{}, err
	}
	defer it.Close()
	versions, err := it.Clone(pebble.CloneOptions{})
	if err != nil {
		return storage.ChangesResult{}, err
	}
	defer versions.Close()
	h, clock := logReader{it: versions}, s.clock.snapshot()
	result := storage.ChangesResult{Through: max(through, r.After), After: r.After}
	first, last, size := logKey(r.After+1), logKey(through), 0
	seek, next, before := func() bool { return it.SeekGE(first) }, it.Next, int64(-1)
	if r.Backwards {
		seek, next, before = func() bool { return it.SeekLT(logKey(through + 1)) }, it.Prev, 1
		result.Through = r.After + 1
	}
	for ok := seek(); ok && bytes.Compare(first, it.Key()) <= 0 && bytes.Compare(it.Key(), last) <= 0; ok = next() {
		revision, err := parseLogKey(it.Key())
		if err != nil {
			return result, err
		}
		if r.Examine > 0 && result.Examined == r.Examine || r.Limit > 0 && len(result.Changes) >= r.Limit ||
			r.Bytes > 0 && size >= r.Bytes {
			result.Through, result.More = revision+before, true
			return result, nil
		}
		if result.Examined++; result.Examined%1024 == 0 && ctx.Err() != nil {
			return result, ctx.Err()
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return result, err
		}
		w, _, err := cutWritten(value)
		if err != nil {
			return result, err
		}
		err = decodeLog(value, func(key []byte, op logOp) error {
			if !bytes.HasPrefix(key, []byte(r.Prefix)) {
				return nil
			}
			op.key = string(key)
			c, err := h.change(op, revision, r.KeysOnly)
			c.Time, c.By, c.Deadline = w.time(), bytes.Clone(w.by), clock.toWallTime(c.Deadline)
			result.Changes = append(result.Changes, c)
			size += len(c.Entry.Value)
			return err
		})
		if err != nil {
			return result, err
		}
	}
	return result, it.Error()
}

// change returns a change of the log with its value.
func (r *logReader) change(op logOp, revision int64, keysOnly bool) (storage.Change, error) {
	c := storage.Change{Event: storage.Event{
		Entry: storage.Entry{Key: op.key, ModRevision: revision}, Deleted: op.deleted,
		Prev: storage.Entry{Key: op.key, ModRevision: op.prev},
	}}
	if op.deleted || keysOnly {
		return c, nil
	}
	v, err := r.version(op.key, revision)
	c.Entry, c.Deadline = v.entry(op.key), v.deadline
	return c, err
}

// RevisionAt implements storage.History.
func (s *Store) RevisionAt(ctx context.Context, scope storage.Scope, t time.Time) (int64, error) {
	if err := s.lifetime.enter(ctx); err != nil {
		return 0, err
	}
	defer s.lifetime.leave()
	found, err := s.db.loggedAt(ctx, t, s.hub.durable.Load())
	if err != nil {
		return 0, asDamage(err)
	}
	found = max(found, 1) // the revision of an empty store
	floors := s.compactor.floors.Load()
	floor := floors.of(scope)
	if key := scope.Prefix; key != "" && !strings.HasSuffix(key, "/") {
		floor = floors.ofKey(scope, key)
	}
	switch {
	case found >= floor.Revision:
		return found, nil
	case floor.MS != 0 && floor.MS <= t.UnixMilli():
		return floor.Revision, nil // the records since then are of other keys, and are gone
	}
	return 0, &storage.CompactedError{Revision: found, Compacted: floor.Revision}
}

// WrittenAt implements storage.History.
func (s *Store) WrittenAt(ctx context.Context, revision int64) (time.Time, []byte, error) {
	if err := s.lifetime.enter(ctx); err != nil {
		return time.Time{}, nil, err
	}
	defer s.lifetime.leave()
	if revision > s.hub.durable.Load() {
		return time.Time{}, nil, nil
	}
	w, err := s.db.writtenAt(revision)
	return w.time(), w.by, asDamage(err)
}

// currentWritten returns the revision of the log record at the position of the iterator, and when and by whom it was written.
func currentWritten(it *pebble.Iterator) (int64, written, error) {
	revision, err := parseLogKey(it.Key())
	if err != nil {
		return 0, written{}, err
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return 0, written{}, err
	}
	w, _, err := cutWritten(value)
	return revision, w, err
}
