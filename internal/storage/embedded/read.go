package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

var errNegativeRevision = errors.New("embedded: negative revision")

// openView opens an iterator that contains every version that a read at revision needs (0 means the latest revision),
// and returns it with that revision. It fails with *storage.FutureRevisionError or *storage.CompactedError. floor returns the
// lowest revision that can be read. The order of the steps matters: see the invariant about compaction in the package comment.
func (s *Store) openView(
	ctx context.Context, revision int64, o *pebble.IterOptions, floor func() int64,
) (*pebble.Iterator, int64, error) {
	if revision < 0 {
		return nil, 0, errNegativeRevision
	}
	for {
		durable := s.hub.durable.Load()
		at := revision
		if at == 0 {
			at = durable
		}
		if at > durable {
			return nil, 0, &storage.FutureRevisionError{Revision: revision, Current: durable}
		}
		it, err := s.db.NewIterWithContext(ctx, o)
		if err != nil {
			return nil, 0, err
		}
		compacted := floor()
		if at >= compacted {
			return it, at, nil
		}
		if err := it.Close(); err != nil {
			return nil, 0, err
		}
		if revision != 0 {
			return nil, 0, &storage.CompactedError{Revision: revision, Compacted: compacted}
		}
	}
}

// seekVersion returns the newest version of key at or below revision. Its value is valid until the iterator moves. buf
// is memory for the seek key.
func seekVersion(it *pebble.Iterator, buf []byte, key string, revision int64) (version, bool, error) {
	if !it.SeekPrefixGE(appendVersionKey(buf[:0], key, revision)) {
		return version{}, false, it.Error()
	}
	return currentVersion(it)
}

// currentVersion decodes the version at the position of the iterator.
func currentVersion(it *pebble.Iterator) (version, bool, error) {
	_, revision, err := splitVersionKey(it.Key())
	if err != nil {
		return version{}, false, err
	}
	b, err := it.ValueAndErr()
	if err != nil {
		return version{}, false, err
	}
	v, err := decodeVersion(b, revision)
	return v, err == nil, err
}

// newestVersions implements planner.view.
func (s *Store) newestVersions() (versionReader, error) {
	it, err := s.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return nil, err
	}
	return &iterReader{it: it}, nil
}

// iterReader implements versionReader with a Pebble iterator.
type iterReader struct {
	it  *pebble.Iterator
	buf [128]byte
}

func (r *iterReader) newest(key string) (version, bool, error) {
	v, ok, err := seekVersion(r.it, r.buf[:0], key, maxRevision)
	return v, ok, asDamage(err)
}

func (r *iterReader) close() error { return r.it.Close() }

const maxRevision = 1<<63 - 1

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string, revision int64) (storage.Entry, int64, error) {
	return s.get(ctx, key, revision, s.history.compacted.Load)
}

// get is Get with the lowest revision that can be read.
func (s *Store) get(ctx context.Context, key string, revision int64, floor func() int64) (storage.Entry, int64, error) {
	if err := validateKey(key); err != nil {
		return storage.Entry{}, 0, err
	}
	if err := s.enter(ctx); err != nil {
		return storage.Entry{}, 0, err
	}
	defer s.leave()
	it, at, err := s.openView(ctx, revision, &pebble.IterOptions{UseL6Filters: true}, floor)
	if err != nil {
		return storage.Entry{}, 0, asDamage(err)
	}
	defer it.Close()
	var buf [128]byte
	v, ok, err := seekVersion(it, buf[:0], key, at)
	if err != nil {
		return storage.Entry{}, 0, asDamage(err)
	}
	if !ok || v.tombstone {
		return storage.Entry{}, at, nil
	}
	return v.entry(key), at, nil
}

// Range implements storage.Store. Keys beyond the limit are counted without reading their values. A client that reads a
// large range in pages should set Uncounted, so that not every page counts all keys after it.
func (s *Store) Range(ctx context.Context, r storage.RangeRequest) (storage.RangeResult, error) {
	return s.readRange(ctx, r, s.history.compacted.Load)
}

// readRange is Range with the lowest revision that can be read.
func (s *Store) readRange(
	ctx context.Context, r storage.RangeRequest, floor func() int64,
) (storage.RangeResult, error) {
	if err := s.enter(ctx); err != nil {
		return storage.RangeResult{}, err
	}
	defer s.leave()
	o := &pebble.IterOptions{LowerBound: appendVersionBound(nil, r.Start), UpperBound: []byte{prefixVersion + 1}}
	if r.Revision > 0 {
		o.PointKeyFilters = upTo(r.Revision)
	}
	if r.End != "" {
		o.UpperBound = appendVersionBound(nil, r.End)
	}
	empty := bytes.Compare(o.LowerBound, o.UpperBound) >= 0
	if empty {
		o.LowerBound, o.UpperBound = []byte{prefixVersion}, []byte{prefixVersion}
	}
	it, at, err := s.openView(ctx, r.Revision, o, floor)
	if err != nil {
		return storage.RangeResult{}, err
	}
	defer it.Close()
	result := storage.RangeResult{Revision: at}
	if empty {
		return result, nil
	}
	if err := scan(ctx, it, r, &result); err != nil {
		return storage.RangeResult{}, asDamage(err)
	}
	return result, nil
}

// scan adds the version at result.Revision of each key in the range of it to the result.
func scan(ctx context.Context, it *pebble.Iterator, r storage.RangeRequest, result *storage.RangeResult) error {
	var seek []byte
	steps, size := 0, 0
	for ok := it.First(); ok; {
		if steps++; steps%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		key, revision, err := splitVersionKey(it.Key())
		if err != nil {
			return err
		}
		if revision > result.Revision {
			// This version is too new. Seek to the version at the revision, or to the next key if there is none.
			seek = append(append(append(seek[:0], prefixVersion), key...), 0)
			ok = it.SeekGE(binary.BigEndian.AppendUint64(seek, ^uint64(result.Revision)))
			continue
		}
		n, err := addToResult(it, key, revision, r, r.Bytes > 0 && size >= r.Bytes, result)
		if err != nil {
			return err
		}
		size += n
		if r.Uncounted && result.More {
			return nil
		}
		ok = it.NextPrefix()
	}
	return it.Error()
}

// addToResult adds the version at the position of the iterator to the result, or only counts it, as r demands and if
// the result is full. It returns the size of the value that it has added.
func addToResult(
	it *pebble.Iterator, key []byte, revision int64, r storage.RangeRequest, full bool, result *storage.RangeResult,
) (int, error) {
	b, err := it.ValueAndErr()
	if err != nil {
		return 0, err
	}
	if isTombstone(b) {
		return 0, nil
	}
	if r.CountOnly && r.Uncounted && r.Limit > 0 && result.Count >= int64(r.Limit) {
		result.More = true
		return 0, nil
	}
	result.Count++
	if r.CountOnly {
		return 0, nil
	}
	if full || r.Limit > 0 && len(result.Entries) >= r.Limit {
		result.More = true
		return 0, nil
	}
	v, err := decodeVersion(b, revision)
	if err != nil {
		return 0, err
	}
	result.Entries = append(result.Entries, v.entry(string(key)))
	return len(v.value), nil
}

// Revision implements storage.Store. Waiting watchers get the revision soon after (see hub.requestProgress).
func (s *Store) Revision(ctx context.Context) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	s.hub.requestProgress()
	return s.hub.durable.Load(), nil
}

// Stats implements storage.Store. SizeBytes is at most a few seconds old.
func (s *Store) Stats() storage.Stats {
	return storage.Stats{
		Revision:          s.hub.durable.Load(),
		CompactedRevision: s.history.compacted.Load(),
		SizeBytes:         s.files.sizeBytes.Load(),
		DamagedFiles:      s.files.damaged.Load(),
	}
}
