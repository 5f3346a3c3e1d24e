package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

var errNegativeRevision = errors.New("embedded: negative revision")

// reads implements the reads at a revision, of versions and of changes, for all methods of a store. Each method
// has entered the lifetime of the store while it uses the database.
type reads struct {
	db        *database
	hub       *hub // has the durable revision
	lifetime  *lifetime
	compacted *atomic.Int64 // the compaction revision
}

// openView opens an iterator that contains every version that a read at revision needs (0 means the latest revision),
// and returns it with that revision. It fails with *storage.FutureRevisionError or *storage.CompactedError. floor returns the
// lowest revision that can be read. The order of the steps matters: see the invariant about compaction in the package comment.
func (r *reads) openView(
	ctx context.Context, revision int64, o *pebble.IterOptions, floor func() int64,
) (*pebble.Iterator, int64, error) {
	if revision < 0 {
		return nil, 0, errNegativeRevision
	}
	for {
		durable := r.hub.durable.Load()
		at := revision
		if at == 0 {
			at = durable
		}
		if at > durable {
			return nil, 0, &storage.FutureRevisionError{Revision: revision, Current: durable}
		}
		it, err := r.db.NewIterWithContext(ctx, o)
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

// get implements Store.Get and Store.GetAt. floor returns the lowest revision that can be read.
func (r *reads) get(ctx context.Context, key string, revision int64, floor func() int64) (storage.Entry, int64, error) {
	if err := validateKey(key); err != nil {
		return storage.Entry{}, 0, err
	}
	if err := r.lifetime.enter(ctx); err != nil {
		return storage.Entry{}, 0, err
	}
	defer r.lifetime.leave()
	it, at, err := r.openView(ctx, revision, &pebble.IterOptions{UseL6Filters: true}, floor)
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

// getRange implements Store.Range and Store.RangeAt.
func (r *reads) getRange(
	ctx context.Context, request storage.RangeRequest, floor func() int64,
) (storage.RangeResult, error) {
	if err := r.lifetime.enter(ctx); err != nil {
		return storage.RangeResult{}, err
	}
	defer r.lifetime.leave()
	o := &pebble.IterOptions{LowerBound: appendVersionBound(nil, request.Start), UpperBound: []byte{prefixVersion + 1}}
	if request.Revision > 0 {
		o.PointKeyFilters = upTo(request.Revision)
	}
	if request.End != "" {
		o.UpperBound = appendVersionBound(nil, request.End)
	}
	empty := bytes.Compare(o.LowerBound, o.UpperBound) >= 0
	if empty {
		o.LowerBound, o.UpperBound = []byte{prefixVersion}, []byte{prefixVersion}
	}
	it, at, err := r.openView(ctx, request.Revision, o, floor)
	if err != nil {
		return storage.RangeResult{}, err
	}
	defer it.Close()
	result := storage.RangeResult{Revision: at}
	if empty {
		return result, nil
	}
	if err := scan(ctx, it, request, &result); err != nil {
		return storage.RangeResult{}, asDamage(err)
	}
	return result, nil
}

// batchFromLog reads a batch from the log, beginning at revision from. It is for watchers that are too far behind
// for the ring. It fails with *storage.CompactedError if that part of the log was compacted.
func (r *reads) batchFromLog(ctx context.Context, prefix string, from int64) (storage.Batch, error) {
	if err := r.lifetime.enter(ctx); err != nil {
		return storage.Batch{}, err
	}
	defer r.lifetime.leave()
	through := r.hub.durable.Load()
	it, err := r.db.NewIterWithContext(ctx, nil)
	if err != nil {
		return storage.Batch{}, err
	}
	defer it.Close()
	// This check must follow the opening of the iterator: a compaction after it does not change the contents of
	// the iterator.
	if compacted := r.compacted.Load(); from <= compacted {
		return storage.Batch{}, &storage.CompactedError{Revision: from, Compacted: compacted}
	}
	h := logReader{it: it, prefix: []byte(prefix)}
	changes, last, err := h.changes(from, through)
	if err != nil {
		return storage.Batch{}, err
	}
	b := storage.Batch{Revision: last, Events: make([]storage.Event, 0, len(changes))}
	size := 0
	for i, c := range changes {
		if size >= batchBytes && c.revision > changes[i-1].revision {
			b.Revision = changes[i-1].revision // the next batch begins with the other changes
			break
		}
		event, err := h.event(c)
		if err != nil {
			return storage.Batch{}, err
		}
		size += len(event.Entry.Value) + len(event.Prev.Value)
		b.Events = append(b.Events, event)
	}
	return b, nil
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
	return s.reads.get(ctx, key, revision, s.compactor.compacted.Load)
}

// Range implements storage.Store. Keys beyond the limit are counted without reading their values. A client that reads a
// large range in pages should set Uncounted, so that not every page counts all keys after it.
func (s *Store) Range(ctx context.Context, r storage.RangeRequest) (storage.RangeResult, error) {
	return s.reads.getRange(ctx, r, s.compactor.compacted.Load)
}

// scan adds the version at result.Revision of each key in the range of the iterator to the result.
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

// addToResult adds the version at the position of the iterator to the result. If the request only counts, or if
// the result is full, it only counts the version. It returns the size of the value that it has added.
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
	if err := s.lifetime.enter(ctx); err != nil {
		return 0, err
	}
	defer s.lifetime.leave()
	s.hub.requestProgress()
	return s.hub.durable.Load(), nil
}

// Stats implements storage.Store. SizeBytes is at most a few seconds old.
func (s *Store) Stats() storage.Stats {
	return storage.Stats{
		Revision:          s.hub.durable.Load(),
		CompactedRevision: s.compactor.compacted.Load(),
		SizeBytes:         s.files.sizeBytes.Load(),
		DamagedFiles:      s.files.damaged.Load(),
		WrittenBytes:      s.hub.written.Load(),
	}
}
