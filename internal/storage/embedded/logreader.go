package embedded

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

// maxScannedLogRecords is the largest number of log records that are read for one batch.
const maxScannedLogRecords = 10_000

// batchFromLog reads the batch that begins at revision from from the log. It is for watchers that are too far behind
// for the ring. It fails with *storage.CompactedError if that part of the log was compacted.
func (s *Store) batchFromLog(ctx context.Context, prefix string, from int64) (storage.Batch, error) {
	if err := s.enter(ctx); err != nil {
		return storage.Batch{}, err
	}
	defer s.leave()
	through := s.hub.durable.Load()
	it, err := s.db.NewIterWithContext(ctx, nil)
	if err != nil {
		return storage.Batch{}, err
	}
	defer it.Close()
	// This check follows the opening of the iterator: a later compaction does not change what the iterator reads.
	if compacted := s.history.compacted.Load(); from <= compacted {
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
			b.Revision = changes[i-1].revision // the other changes are for the next batch
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

// logReader reads log records and versions through one iterator, so that both belong to the same state.
type logReader struct {
	it     *pebble.Iterator
	prefix []byte
	buf    [128]byte
}

// loggedChange is a log operation with its revision.
type loggedChange struct {
	logOp
	revision int64
}

// changes returns the changes with the prefix of h from revision from to through, and the last revision that was
// examined. It stops when there are enough changes for a batch.
func (h *logReader) changes(from, through int64) (out []loggedChange, last int64, err error) {
	end := logKey(through)
	scanned := 0
	for ok := h.it.SeekGE(logKey(from)); ok && bytes.Compare(h.it.Key(), end) <= 0; ok = h.it.Next() {
		if scanned++; scanned > maxScannedLogRecords || len(out) >= batchEvents {
			return out, last, nil
		}
		revision, err := parseLogKey(h.it.Key())
		if err != nil {
			return nil, 0, err
		}
		value, err := h.it.ValueAndErr()
		if err != nil {
			return nil, 0, err
		}
		err = decodeLog(value, func(key []byte, op logOp) error {
			if bytes.HasPrefix(key, h.prefix) {
				op.key = string(key)
				out = append(out, loggedChange{op, revision})
			}
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
		last = revision
	}
	return out, through, h.it.Error()
}

// event returns the event of a logged change, with the values before and after it.
func (h *logReader) event(c loggedChange) (storage.Event, error) {
	e := storage.Event{Entry: storage.Entry{Key: c.key, ModRevision: c.revision}, Deleted: c.deleted}
	var err error
	if !c.deleted {
		if e.Entry, err = h.entry(c.key, c.revision); err != nil {
			return e, err
		}
	}
	if c.prev != 0 {
		e.Prev, err = h.entry(c.key, c.prev)
	}
	return e, err
}

// entry returns the version of key that was written at exactly revision.
func (h *logReader) entry(key string, revision int64) (storage.Entry, error) {
	v, ok, err := seekVersion(h.it, h.buf[:0], key, revision)
	if err != nil {
		return storage.Entry{}, err
	}
	if !ok || v.revision != revision || v.tombstone {
		return storage.Entry{}, fmt.Errorf(
			"%w: the log names %q at revision %d, which is not there", errCorrupt, key, revision,
		)
	}
	return v.entry(key), nil
}
