package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/storage"
)

// marks remembers which revision was current at which uptime (see storeClock), to know
// which revision leaves the history window. It is saved in the database, so that history
// leaves the window also if no process lives as long as that.
type marks struct {
	list []mark // at least one, in order
	// spacing is the least time between two marks, which bounds their number.
	spacing time.Duration
}

type mark struct {
	time     time.Duration
	revision int64
}

// marksPerWindow is how finely marks can measure a window.
const marksPerWindow = 64

// newMarks makes marks for a window. saved are those of the processes before; the times
// are not later than now, which is when revision is current.
func newMarks(window time.Duration, saved []mark, now time.Duration, revision int64) *marks {
	m := &marks{spacing: window / marksPerWindow}
	for _, s := range saved {
		if s.revision <= revision {
			m.list = append(m.list, mark{min(s.time, now), s.revision})
		}
	}
	if len(m.list) == 0 {
		m.list = []mark{{now, revision}}
	}
	m.add(now, revision)
	return m
}

// add notes that revision is current at now, and returns whether that changed a mark.
func (m *marks) add(now time.Duration, revision int64) bool {
	last := &m.list[len(m.list)-1]
	switch {
	case revision == last.revision: // it became current then, or before
		return false
	case now <= last.time:
		last.revision = revision
	case now < last.time+m.spacing: // a later mark stands for it
		return false
	default:
		m.list = append(m.list, mark{now, revision})
	}
	return true
}

// leave returns the newest revision that was current at or before t, 0 if none
// is known, and forgets older ones.
func (m *marks) leave(t time.Duration) int64 {
	n := 0
	for n < len(m.list) && m.list[n].time <= t {
		n++
	}
	if n == 0 {
		return 0
	}
	m.list = append(m.list[:0], m.list[n-1:]...)
	return m.list[0].revision
}

func (m *marks) encode() []byte {
	var b []byte
	for _, k := range m.list {
		b = binary.AppendUvarint(b, uint64(k.time.Milliseconds()))
		b = binary.AppendUvarint(b, uint64(k.revision))
	}
	return b
}

func decodeMarks(b []byte) (list []mark, err error) {
	for len(b) > 0 {
		var ms, revision int64
		if ms, b, err = cutUvarint(b); err == nil {
			revision, b, err = cutUvarint(b)
		}
		if err != nil {
			return nil, err
		}
		k, last := mark{time.Duration(ms) * time.Millisecond, revision}, mark{}
		if len(list) > 0 {
			last = list[len(list)-1]
		}
		if ms > math.MaxInt64/int64(time.Millisecond) || k.time < last.time || revision < last.revision {
			return nil, fmt.Errorf("%w: marks", errCorrupt)
		}
		list = append(list, k)
	}
	return list, nil
}

// openMarks begins the marks where the process before saved them.
func (s *Store) openMarks(revision int64) error {
	b, closer, err := s.db.Get([]byte(metaMarks))
	var saved []mark
	switch {
	case errors.Is(err, pebble.ErrNotFound):
	case err != nil:
		return fmt.Errorf("data directory %s: reading %s: %w", s.opts.Dir, metaMarks, err)
	default:
		defer closer.Close()
		if saved, err = decodeMarks(b); err != nil {
			return fmt.Errorf("data directory %s: %w", s.opts.Dir, err)
		}
	}
	up := s.clock.up()
	s.marks = newMarks(s.opts.HistoryWindow, saved, up, revision)
	s.recent = newMarks(lowSpaceWindow, nil, up, revision)
	return nil
}

// compactHistory compacts what has left the window.
func (s *Store) compactHistory() {
	now := s.clock.up()
	noted := s.marks.add(now, s.hub.durable.Load())
	// A version overwritten just after a mark was readable until then, so the
	// state at the mark is kept, and everything after it.
	s.forget(s.marks.leave(now - s.opts.HistoryWindow))
	if noted {
		s.saveMarks()
	}
}

// relieve frees space while there is little: it compacts history that is older than
// lowSpaceWindow, and has what is garbage merged.
func (s *Store) relieve() {
	now := s.clock.up()
	s.recent.add(now, s.hub.durable.Load())
	revision := s.recent.leave(now - lowSpaceWindow)
	if s.space.level.Load() == spaceEnough {
		return
	}
	if s.opts.HistoryWindow > 0 {
		s.forget(revision)
	}
	s.reclaimer.look(true)
}

// forget compacts up to revision in the background.
func (s *Store) forget(revision int64) {
	if err := s.compact(s.stopped, revision); err != nil && s.stopped.Err() == nil {
		s.opts.Logger.Error("history could not be compacted", "revision", revision, "error", err)
	}
}

// saveMarks writes the marks down, with the clock that they are of. It is not synced:
// after a power cut history is kept a little longer.
func (s *Store) saveMarks() {
	if s.pipeline.failure.Load() != nil || s.space.level.Load() == spaceCritical {
		return
	}
	b := s.db.NewBatch()
	defer b.Close()
	must(b.Set([]byte(metaMarks), s.marks.encode(), nil))
	must(b.Set([]byte(metaClock), s.clock.saved().encode(), nil))
	_ = s.write(b) // a failure stops the store, which says so
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
	defer func() { s.reclaimer.look(s.space.level.Load() != spaceEnough) }()
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
	deleted := garbage{}
	for ok := it.First(); ok; ok = it.Next() {
		at, err := parseLogKey(it.Key())
		if err != nil {
			return err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		err = decodeLog(value, func(key []byte, op logOp) error {
			if op.prev != 0 {
				forgetVersion(b, &deleted, string(key), op)
			}
			if op.deleted {
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
	s.reclaimer.add(&deleted)
	return nil
}

// forgetVersion deletes the version before op, and notes how much that is. With its size
// the database knows by itself what a merge of its tables would give back.
func forgetVersion(b *pebble.Batch, deleted *garbage, key string, op logOp) {
	k := appendVersionKey(nil, key, op.prev)
	if op.prevSize == 0 || op.prevSize > math.MaxUint32 {
		must(b.Delete(k, nil))
	} else {
		must(b.DeleteSized(k, uint32(op.prevSize), nil))
	}
	deleted.add(key, key, int64(len(k))+op.prevSize)
}

// write applies a batch of the background's, unsynced.
func (s *Store) write(b *pebble.Batch) error {
	_, err := guardPanic(func() (struct{}, error) { return struct{}{}, s.db.Apply(b, pebble.NoSync) })
	if err != nil {
		return s.pipeline.fail(err)
	}
	return nil
}
