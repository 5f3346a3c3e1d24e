package embedded

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/storage"
)

// historyScan bounds the log records that one batch from history looks at.
const historyScan = 10_000

// history reads the batch that begins at revision from out of the log. It fails
// with *storage.CompactedError if the log does not reach back that far.
func (s *Store) history(ctx context.Context, prefix string, from int64) (storage.Batch, error) {
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
	// After the iterator was opened: what it sees is whole from here on.
	if compacted := s.compacted.Load(); from <= compacted {
		return storage.Batch{}, &storage.CompactedError{Revision: from, Compacted: compacted}
	}
	h := historyReader{it: it, prefix: []byte(prefix)}
	changes, last, err := h.changes(from, through)
	if err != nil {
		return storage.Batch{}, err
	}
	b := storage.Batch{Revision: last, Events: make([]storage.Event, 0, len(changes))}
	size := 0
	for i, c := range changes {
		if size >= batchBytes && c.revision > changes[i-1].revision {
			b.Revision = changes[i-1].revision // the rest is another batch's
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

// historyReader reads log and versions through one iterator, which is to say
// as of one moment.
type historyReader struct {
	it     *pebble.Iterator
	prefix []byte
	buf    [128]byte
}

// loggedChange is a log operation with its revision.
type loggedChange struct {
	logOp
	revision int64
}

// changes returns the matching changes from revision from on, and the last
// revision looked at, at most through. It stops after a batch's worth.
func (h *historyReader) changes(from, through int64) (out []loggedChange, last int64, err error) {
	end := logKey(through)
	scanned := 0
	for ok := h.it.SeekGE(logKey(from)); ok && bytes.Compare(h.it.Key(), end) <= 0; ok = h.it.Next() {
		if scanned++; scanned > historyScan || len(out) >= batchEvents {
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
		err = decodeLog(value, func(key []byte, deleted bool, prev int64) error {
			if bytes.HasPrefix(key, h.prefix) {
				out = append(out, loggedChange{logOp{string(key), deleted, prev}, revision})
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

// event makes the event of a logged change.
func (h *historyReader) event(c loggedChange) (storage.Event, error) {
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

// entry returns the version of key written at exactly revision.
func (h *historyReader) entry(key string, revision int64) (storage.Entry, error) {
	v, ok, err := seekVersion(h.it, h.buf[:0], key, revision)
	if err != nil {
		return storage.Entry{}, err
	}
	if !ok || v.revision != revision || v.tombstone {
		return storage.Entry{}, fmt.Errorf("%w: the log names %q at revision %d, which is not there", errCorrupt, key, revision)
	}
	return v.entry(key), nil
}

// marks remembers which revision was current when, to know which revision leaves
// the history window. Times never go back.
type marks struct {
	list []mark
}

type mark struct {
	time     time.Time
	revision int64
}

func newMarks(now time.Time, revision int64) *marks {
	return &marks{list: []mark{{now, revision}}}
}

// add notes that revision is current at now.
func (m *marks) add(now time.Time, revision int64) {
	last := &m.list[len(m.list)-1]
	if revision == last.revision {
		return // it became current then, or before
	}
	if now.Before(last.time) {
		now = last.time // the clock was set back
	}
	m.list = append(m.list, mark{now, revision})
}

// leave returns the newest revision that was current at or before t, 0 if none
// is known, and forgets older ones.
func (m *marks) leave(t time.Time) int64 {
	n := 0
	for n < len(m.list) && !m.list[n].time.After(t) {
		n++
	}
	if n == 0 {
		return 0
	}
	m.list = append(m.list[:0], m.list[n-1:]...)
	return m.list[0].revision
}

// compactHistory compacts what has left the window.
func (s *Store) compactHistory(m *marks) {
	now := s.opts.Clock()
	m.add(now, s.hub.durable.Load())
	// A version overwritten just after a mark was readable until then, so the
	// state at the mark is kept, and everything after it.
	revision := m.leave(now.Add(-s.opts.HistoryWindow))
	if err := s.compact(s.stopped, revision); err != nil && s.stopped.Err() == nil {
		s.opts.Logger.Error("history could not be compacted", "revision", revision, "error", err)
	}
}

// Compact implements storage.Store. It returns when what it forgets is deleted; if
// it is cancelled, the rest is deleted with the next compaction.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if revision < 0 {
		return errNegativeRevision
	}
	if durable := s.hub.durable.Load(); revision > durable {
		return &storage.FutureRevisionError{Revision: revision, Current: durable}
	}
	return s.compact(ctx, revision)
}

// compact moves the compaction revision up to revision, which must be durable, and
// deletes what that makes unreadable: for each logged change up to it the
// version before the change, tombstones, and the log records themselves. The cost
// is in proportion to the changes, not to the keys.
func (s *Store) compact(ctx context.Context, revision int64) error {
	s.compacting.Lock()
	defer s.compacting.Unlock()
	revision = max(revision, s.compacted.Load())
	if revision <= s.scrubbed {
		return nil
	}
	s.compacted.Store(revision)
	for s.scrubbed < revision {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.scrub(revision); err != nil {
			return err
		}
	}
	return nil
}

// scrubRecords is how many log records one step of a compaction handles.
const scrubRecords = 1024

// scrub does one step of a compaction up to revision, atomically: its deletions
// and the log records that led to them go together, so that a crash leaves nothing
// behind that no log record names. It is not synced: if it is lost, it is done
// again.
func (s *Store) scrub(revision int64) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: logKey(s.scrubbed + 1), UpperBound: logKey(revision + 1)})
	if err != nil {
		return err
	}
	defer it.Close()
	b := s.db.NewBatch()
	defer b.Close()
	done, n := revision, 0
	for ok := it.First(); ok; ok = it.Next() {
		at, err := parseLogKey(it.Key())
		if err != nil {
			return err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		err = decodeLog(value, func(key []byte, deleted bool, prev int64) error {
			if prev != 0 {
				must(b.Delete(appendVersionKey(nil, string(key), prev), nil))
			}
			if deleted {
				must(b.Delete(appendVersionKey(nil, string(key), at), nil))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if n++; n == scrubRecords {
			done = at
			break
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	must(b.DeleteRange(logKey(0), logKey(done+1), nil))
	must(b.Set([]byte(metaCompacted), encodeNumber(revision), nil))
	if err := s.write(b); err != nil {
		return err
	}
	s.scrubbed = done
	return nil
}

// write applies a batch of the background's, unsynced.
func (s *Store) write(b *pebble.Batch) error {
	_, err := guardPanic(func() (struct{}, error) { return struct{}{}, s.db.Apply(b, pebble.NoSync) })
	if err != nil {
		return s.pipeline.fail(err)
	}
	return nil
}
