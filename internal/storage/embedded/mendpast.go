package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// A damaged table may have contained deletions. Then a record that a compaction had deleted reappears if an older
// table still has it. Nothing shows that such a record was deleted. But the store knows up to which revision it
// has removed the past (type kept). So everything up to there is removed again: the functions here remove
// operations from the log, and mender.unreachable removes the versions that no operation names.
//
// Example: /a was put at revision 2 and deleted at 5, and both were compacted. The log records 2 and 5 are back,
// because the table with their deletions was damaged. If they stayed, the log would name version 2 of /a, which
// does not exist, and /a would count as lost.

// givenUpThrough returns which operations on a key were removed from the history (given up) before the damage: all
// at revisions up to certainly, and none above maybe. An operation between the two may have been removed or not.
func (m *mender) givenUpThrough(key string) (certainly, maybe int64) {
	maybe = m.compacted
	if i := m.kept.ruleOf(key); i >= 0 {
		certainly = m.kept.Passed[m.kept.Rules[i].KeepMS].later(m.kept.Cut).Revision
		maybe = m.kept.floor(i, m.compacted).Revision
	}
	for i := range m.kept.Losses {
		if l := &m.kept.Losses[i]; l.affectsKey(key) {
			maybe = max(maybe, l.Revision)
		}
	}
	return certainly, max(certainly, maybe)
}

// giveUpAgain removes the operations from the log that had been given up before the damage.
func (m *mender) giveUpAgain(ctx context.Context) error {
	it, err := m.store.db.NewIter(logSpan())
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		revision, err := parseLogKey(it.Key())
		if err != nil {
			return err
		}
		if revision > m.compacted {
			break
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := m.rewrite(revision, value, func(key string, op logOp) (bool, error) {
			return m.wasGivenUp(key, op, revision)
		}); err != nil {
			return err
		}
	}
	return it.Error()
}

// wasGivenUp reports whether an operation of the log was given up before the damage. Between the two revisions of
// givenUpThrough this is not certain. There, wasGivenUp returns true if a version that the operation names is
// missing. The newest version of a key is an exception: it is never given up, so if it is missing, it was damaged.
func (m *mender) wasGivenUp(key string, op logOp, revision int64) (bool, error) {
	certainly, maybe := m.givenUpThrough(key)
	if revision <= certainly || revision > maybe {
		return revision <= certainly, nil
	}
	own, ok, err := seekVersion(m.versions, nil, key, revision)
	if err != nil {
		return false, err
	}
	if !ok || own.revision != revision {
		newest, ok, err := seekVersion(m.versions, nil, key, maxRevision)
		return ok && newest.revision > revision, err
	}
	if op.prev == 0 {
		return false, nil
	}
	before, ok, err := seekVersion(m.versions, nil, key, op.prev)
	return !ok || before.revision != op.prev, err
}

// rewrite removes operations from a log record. If none is left, it removes the record.
func (m *mender) rewrite(revision int64, record []byte, remove func(key string, op logOp) (bool, error)) error {
	w, _, err := cutWritten(record)
	if err != nil {
		return err
	}
	rest, removed := appendWritten(nil, w), false
	empty := len(rest)
	err = decodeLog(record, func(key []byte, op logOp) error {
		op.key = string(key)
		gone, err := remove(op.key, op)
		if removed = removed || gone; !gone {
			rest = appendLogOp(rest, op)
		}
		return err
	})
	switch {
	case err != nil || !removed:
		return err
	case len(rest) == empty:
		return m.batch.Delete(logKey(revision), nil)
	}
	return m.batch.Set(logKey(revision), rest, nil)
}

// forget removes the operation on a key from the log record of a revision, if it is there.
func (m *mender) forget(key string, revision int64) error {
	return m.record(revision, func(value []byte) error {
		return m.rewrite(revision, value, func(k string, _ logOp) (bool, error) { return k == key, nil })
	})
}

// operation returns the operation on a key in the log record of a revision, if it is there.
func (m *mender) operation(key string, revision int64) (found logOp, ok bool, err error) {
	err = m.record(revision, func(value []byte) error {
		return decodeLog(value, func(k []byte, op logOp) error {
			if string(k) == key {
				found, ok = op, true
			}
			return nil
		})
	})
	return found, ok, err
}

// record calls use with the log record of a revision, if it is there. The record is valid until use returns.
func (m *mender) record(revision int64, use func(value []byte) error) error {
	value, closer, err := m.batch.Get(logKey(revision))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	value = bytes.Clone(value) // use may change the batch
	return errors.Join(closer.Close(), use(value))
}

// lostLog finds the log records of the kept past that may be lost. A missing record may also have been given up,
// and this cannot be distinguished. So the kept past begins after the last record that is missing in a gap.
// Records above the compaction revision are never given up; the step log finds which of them are missing.
func (m *mender) lostLog(context.Context) error {
	from := m.compacted // all records up to here may be missing
	for i := range m.kept.Rules {
		from = min(from, m.kept.floor(i, m.compacted).Revision)
	}
	bounds, err := m.tableBounds()
	if err != nil {
		return err
	}
	it, err := m.store.db.NewIter(logSpan())
	if err != nil {
		return err
	}
	defer it.Close()
	for _, g := range m.gaps {
		g = g.within(bounds)
		first, end := from+1, m.compacted+1
		if after, err := parseLogKey(g.after); err == nil {
			first = max(first, after+1)
		}
		if before, err := parseLogKey(g.before); err == nil {
			end = min(end, before)
		}
		if first >= end || bytes.Compare(g.before, logKey(first)) <= 0 || bytes.Compare(g.after, logKey(end)) >= 0 {
			continue
		}
		for ok := it.SeekLT(logKey(end)); ok; ok = it.Prev() {
			revision, err := parseLogKey(it.Key())
			if err != nil {
				return err
			}
			if revision < end-1 || revision < first {
				break
			}
			end = revision
		}
		if err := it.Error(); err != nil {
			return err
		}
		if end > first {
			m.done.LogLost = max(m.done.LogLost, end-1)
		}
	}
	return nil
}

// within returns the gap with known ends. If an end of the gap is the end of a table, it is set to the end of that
// table.
func (g tableGap) within(bounds map[string]gap) tableGap {
	if g.after == nil {
		g.after = bounds[g.table].after
	}
	if g.before == nil {
		g.before = bounds[g.table].before
	}
	return g
}

// olderTables are tables with records that are older than those of another table.
type olderTables struct {
	open []*sstable.Reader
	its  []sstable.Iterator
}

// tablesBelow opens the tables that may contain records which the lost records in a gap had replaced or deleted.
func (m *mender) tablesBelow(g tableGap) (older *olderTables, err error) {
	levels, err := m.store.db.SSTables()
	if err != nil {
		return nil, err
	}
	older = &olderTables{}
	defer func() {
		if err != nil {
			err = errors.Join(err, older.close())
		}
	}()
	damaged := -1 // level of the damaged table
	var newest uint64
	for level, tables := range levels {
		for _, t := range tables {
			if tableName(t) == g.table {
				damaged, newest = level, uint64(t.LargestSeqNum)
			}
		}
	}
	for level, tables := range levels {
		for _, t := range tables {
			// Tables of level 0 overlap, the newer ones have higher sequence numbers.
			below := level > damaged || level == damaged && level == 0 && uint64(t.LargestSeqNum) < newest
			if damaged < 0 || !below || bytes.Compare(t.Largest.UserKey, g.after) < 0 || bytes.Compare(t.Smallest.UserKey, g.before) > 0 {
				continue
			}
			if err := older.add(&m.store.opts, tableName(t)); err != nil {
				return nil, err
			}
		}
	}
	return older, nil
}

// tableName returns the name of the file of a table.
func tableName(t pebble.SSTableInfo) string {
	return fmt.Sprintf("%06d%s", uint64(t.BackingSSTNum), tableSuffix)
}

// add opens a table.
func (t *olderTables) add(o *Options, name string) error {
	f, err := checkBlocks(o).Open(o.FS.PathJoin(o.Dir, name))
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	options := o.pebbleOptions(probing{}, nil)
	options.EnsureDefaults()
	r, err := sstable.NewReader(context.Background(), readable, options.MakeReaderOptions())
	if err != nil {
		return errors.Join(err, readable.Close())
	}
	t.open = append(t.open, r)
	it, err := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err == nil {
		t.its = append(t.its, it)
	}
	return err
}

// has reports whether one of the tables contains a record with this key.
func (t *olderTables) has(record []byte) (bool, error) {
	for _, it := range t.its {
		kv := it.SeekGE(record, 0)
		if kv != nil && bytes.Equal(kv.K.UserKey, record) {
			return true, nil
		}
		if err := it.Error(); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (t *olderTables) close() (err error) {
	for _, it := range t.its {
		err = errors.Join(err, it.Close())
	}
	for _, r := range t.open {
		err = errors.Join(err, r.Close())
	}
	return err
}

// saveKept computes kept.Bytes again and saves kept.
func (m *mender) saveKept(ctx context.Context) error {
	k := &m.kept
	if len(k.Rules) == 0 {
		return nil
	}
	it, err := m.batch.NewIter(logSpan())
	if err != nil {
		return err
	}
	defer it.Close()
	k.Bytes = 0
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		revision, err := parseLogKey(it.Key())
		if err != nil {
			return err
		}
		if revision > k.Passed[0].Revision {
			break
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		w, _, err := cutWritten(value)
		if err != nil {
			return err
		}
		if err := decodeLog(value, func(key []byte, op logOp) error {
			k.Bytes += op.keptBytes(len(key), len(w.by))
			return nil
		}); err != nil {
			return err
		}
	}
	return errors.Join(it.Error(), m.batch.Set([]byte(metaKept), k.encode(), nil))
}
