package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// mender repairs the records in the database.
type mender struct {
	store   *Store
	options RepairOptions
	gaps    []tableGap
	done    *Repaired

	batch       *pebble.Batch // written when all steps are done
	versions    *pebble.Iterator
	revision    int64 // current revision of the store
	compacted   int64
	kept        kept               // state of the kept past; it has no rules if there is no record of it
	firstLogged int64              // revision of the first log record, 0 if there is none
	lost        map[string]int64   // by key, the newest revision that is lost
	deadlines   map[expiring]int64 // deadlines in the expiry index
}

// expiring identifies a version with a deadline.
type expiring struct {
	key      string
	revision int64
}

func (m *mender) run(ctx context.Context) (err error) {
	s := m.store
	m.batch, m.lost = s.db.NewIndexedBatch(), map[string]int64{}
	if m.revision, m.compacted, _, err = s.db.position(); err != nil {
		return err
	}
	// The revision file has the highest revision that clients have seen, also if its log record is lost.
	m.revision = max(m.revision, s.revisionFile.read())
	if m.versions, err = s.db.NewIter(versionSpan()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.versions.Close()) }()
	if m.kept, err = m.store.db.kept(); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		m.expiry, m.giveUpAgain, m.lostLog, m.log, m.logGaps, m.unnamed, m.unreachable, m.saveKept,
	} {
		if err := errors.Join(ctx.Err(), step(ctx)); err != nil {
			return err
		}
	}
	slices.SortFunc(m.done.Lost, func(a, b Lost) int { return strings.Compare(a.Key, b.Key) })
	return m.batch.Commit(&pebble.WriteOptions{Sync: !s.opts.unlogged})
}

// expiry reads the expiry index. It removes records whose version is lost or is not the newest one any more.
func (m *mender) expiry(ctx context.Context) error {
	it, err := m.store.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixExpiry}, UpperBound: []byte{prefixExpiry + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	m.deadlines = map[expiring]int64{}
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		deadline, key, err := parseExpiryKey(it.Key())
		if err != nil {
			return err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		revision, err := decodeNumber(value)
		if err != nil {
			return err
		}
		m.deadlines[expiring{string(key), revision}] = deadline
		mustSucceed(m.batch.Delete(it.Key(), nil)) // unreachable writes the right records again
	}
	return it.Error()
}

// log compares the log with the versions, and writes placeholders for lost values.
func (m *mender) log(ctx context.Context) error {
	it, err := m.batch.NewIter(logSpan())
	if err != nil {
		return err
	}
	defer it.Close()
	want := max(m.compacted, 1) + 1
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		revision, err := parseLogKey(it.Key())
		if err != nil {
			return err
		}
		if m.firstLogged == 0 {
			m.firstLogged = revision
		}
		if revision > want {
			m.done.LogLost = max(m.done.LogLost, revision-1)
		}
		want = max(want, revision+1)
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		err = decodeLog(value, func(key []byte, op logOp) error {
			if op.prev != 0 { // must be first: the log may already have counted it as the last version of the key
				if err := m.version(string(key), op.prev, false); err != nil {
					return err
				}
			}
			return m.version(string(key), revision, op.deleted)
		})
		if err != nil {
			return err
		}
	}
	if m.revision >= want {
		m.done.LogLost = m.revision
	}
	return errors.Join(it.Error(), m.replaceLost())
}

// version looks for a version that the log names.
func (m *mender) version(key string, revision int64, deleted bool) error {
	found, ok, err := seekVersion(m.versions, nil, key, revision)
	if err != nil || ok && found.revision == revision {
		return err
	}
	if deleted { // a deletion can be restored, because it has no value
		m.set(key, revision, version{create: revision, tombstone: true})
		delete(m.lost, key) // versions before the deletion are not the newest one
		return nil
	}
	before, seen := m.lost[key]
	if !seen || revision > before {
		m.lost[key] = revision
	}
	if revision == before {
		return nil
	}
	m.done.Past++
	deadline := m.deadlines[expiring{key, revision}]
	if deadline != 0 {
		mustSucceed(m.batch.Set(appendExpiryKey(nil, deadline, key), encodeNumber(revision), nil))
	}
	m.set(key, revision, version{create: revision, deadline: deadline, value: fmt.Appendf(nil, "%srevision %d", lostPrefix, revision)})
	return nil
}

func (m *mender) set(key string, revision int64, v version) {
	value := make([]byte, v.size())
	v.encode(value)
	mustSucceed(m.batch.Set(appendVersionKey(nil, key, revision), value, nil))
}

// replaceLost finds the lost versions that were the newest ones of their keys, and replaces them.
func (m *mender) replaceLost() error {
	for key, revision := range m.lost {
		newest, ok, err := seekVersion(m.versions, nil, key, maxRevision)
		if err != nil {
			return err
		}
		if ok && newest.revision > revision {
			continue
		}
		m.done.Past--
		lost := Lost{Key: key, Revision: revision}
		for ok && IsLost(newest.value) { // continue to the newest earlier version that can be read
			if newest, ok, err = seekVersion(m.versions, nil, key, newest.revision-1); err != nil {
				return err
			}
		}
		if ok && !newest.tombstone { // the version before a deletion belongs to another object
			lost.Older = newest.revision
			if m.options.UseOlder {
				m.set(key, revision, version{create: newest.create, deadline: newest.deadline, value: newest.value})
			}
		}
		m.done.Lost = append(m.done.Lost, lost)
	}
	return nil
}

// unnamed handles versions that may be lost and are not named in the log. It marks them in one new revision. If
// the log is complete from the first revision of the store on, it names all versions, and there is nothing to do.
func (m *mender) unnamed(context.Context) error {
	if m.compacted == 0 && m.firstLogged > 0 && m.firstLogged <= 2 && m.done.LogLost == 0 {
		return nil
	}
	bounds, err := m.tableBounds()
	if err != nil {
		return err
	}
	u := &unnamedLoss{mender: m, revision: m.revision + 1, taken: map[string]bool{}}
	u.record = appendWritten(nil, written{ms: m.store.opts.Clock().UnixMilli()})
	for _, g := range m.gaps {
		g = g.within(bounds)
		if bytes.Compare(g.before, []byte{prefixVersion}) < 0 || bytes.Compare(g.after, []byte{prefixVersion + 1}) >= 0 {
			continue
		}
		if err := u.gap(g); err != nil {
			return err
		}
	}
	if len(u.taken) == 0 {
		return nil
	}
	return m.batch.Set(logKey(u.revision), u.record, nil)
}

// tableBounds returns the lowest and the highest key of each table, as the database knows them.
func (m *mender) tableBounds() (map[string]gap, error) {
	levels, err := m.store.db.SSTables()
	if err != nil {
		return nil, err
	}
	bounds := map[string]gap{}
	for _, level := range levels {
		for _, t := range level {
			bounds[fmt.Sprintf("%06d%s", uint64(t.BackingSSTNum), tableSuffix)] = gap{t.Smallest.UserKey, t.Largest.UserKey}
		}
	}
	return bounds, nil
}

// unnamedLoss is the new revision that marks versions which may be lost.
type unnamedLoss struct {
	*mender
	revision int64
	record   []byte          // its log record
	taken    map[string]bool // the keys in the record
}

// gap marks the objects that may be lost in a gap. Each folder of keys gets an entry that stands for an unknown
// number of unknown objects. If log records are lost, or do not name everything that was compacted, a key whose
// newest version may be in the gap also counts as lost, because only an older version is left.
func (u *unnamedLoss) gap(g tableGap) error {
	lost := Lost{After: keyOf(g.after), Before: keyOf(g.before)}
	folders := map[string]bool{}
	for _, near := range []string{lost.After, lost.Before} {
		if near != "" {
			folders[path.Dir(near)] = true
		}
	}
	it, err := u.batch.NewIter(versionSpan()) // includes the writes of the earlier steps
	if err != nil {
		return err
	}
	defer it.Close()
	older, err := u.tablesBelow(g)
	if err != nil {
		return err
	}
	defer older.close()
	start := g.after
	if lost.After != "" {
		start = appendVersionKey(nil, lost.After, maxRevision)
	}
	for ok := it.SeekGE(start); ok; ok = it.NextPrefix() {
		v, _, err := currentVersion(it)
		if err != nil {
			return err
		}
		key := keyOf(it.Key())
		if bytes.Compare(appendVersionKey(nil, key, maxRevision), g.before) > 0 {
			break
		}
		folders[path.Dir(key)] = true
		newerInGap := bytes.Compare(it.Key(), g.after) > 0 // a newer version of the key has a lower position
		unsure := v.revision < u.done.LogLost
		if _, maybe := u.givenUpThrough(key); newerInGap && !unsure && !v.tombstone && v.revision < maybe {
			if unsure, err = older.has(it.Key()); err != nil {
				return err
			}
		}
		if newerInGap && unsure && !IsLost(v.value) {
			l := Lost{Key: key, Revision: u.revision}
			if !v.tombstone {
				l.Older = v.revision
			}
			u.lose(l, v)
		}
	}
	for folder := range folders {
		lost.Key = folder + "/~lost." + strings.TrimSuffix(g.table, tableSuffix) // no object has a name with a tilde
		u.lose(lost, version{tombstone: true})
	}
	return it.Error()
}

// lose writes an entry that stands for lost data. left is the newest remaining version of the key.
func (u *unnamedLoss) lose(l Lost, left version) {
	if u.taken[l.Key] {
		return
	}
	u.taken[l.Key] = true
	u.done.Lost = append(u.done.Lost, l)
	v, op := version{create: u.revision, value: []byte(lostPrefix)}, logOp{key: l.Key}
	if !left.tombstone {
		v.create, op.prev, op.prevSize = left.create, left.revision, int64(left.size())
		if u.options.UseOlder {
			v.value = left.value
		}
	}
	u.set(l.Key, u.revision, v)
	u.record = appendLogOp(u.record, op)
}

// keyOf returns the key of a record of a version, "" for other records.
func keyOf(record []byte) string {
	key, _, err := splitVersionKey(record)
	if err != nil {
		return ""
	}
	return string(key)
}

// logGaps raises the compaction revision above the lost log records, and lets the history begin there.
func (m *mender) logGaps(context.Context) error {
	lost := m.done.LogLost
	if lost > m.compacted {
		m.compacted = lost
		mustSucceed(m.batch.Set([]byte(metaCompacted), encodeNumber(lost), nil))
		m.kept.Window = mark{Revision: lost}
	}
	for i := range m.kept.Rules {
		m.kept.Rules[i].Floor = m.kept.Rules[i].Floor.later(mark{Revision: lost})
	}
	return nil
}

// unreachable removes versions of the compacted past that no compaction would remove, because the log does not name
// them. These are deletions without an operation in the log, and versions that the operation on the next newer
// version does not name as the one before it. Older versions of the same key are removed with them. unreachable also
// makes the expiry index again.
func (m *mender) unreachable(ctx context.Context) error {
	it, err := m.batch.NewIter(versionSpan())
	if err != nil {
		return err
	}
	defer it.Close()
	through := max(m.done.LogLost, m.compacted)
	last, newer := "", int64(0)
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		key, revision, err := splitVersionKey(it.Key())
		if err != nil {
			return err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		v, err := decodeVersion(value, revision)
		if err != nil {
			return err
		}
		newest := string(key) != last
		if newest {
			last, newer = string(key), 0
		}
		if newest && !v.tombstone && v.deadline != 0 {
			mustSucceed(m.batch.Set(appendExpiryKey(nil, v.deadline, last), encodeNumber(revision), nil))
		}
		if revision <= through {
			named, err := m.named(last, revision, newer, v.tombstone)
			if err == nil && !named {
				mustSucceed(m.batch.Delete(it.Key(), nil))
				err = m.forget(last, revision)
			}
			if err != nil {
				return err
			}
		}
		newer = revision
	}
	return it.Error()
}

// named reports whether a version is the newest one of its key, or the log names it, so that a compaction will
// remove it. newer is the next higher revision of the key, 0 if there is none.
func (m *mender) named(key string, revision, newer int64, deleted bool) (bool, error) {
	if deleted {
		_, ok, err := m.operation(key, revision)
		return ok, err
	}
	if newer == 0 {
		return true, nil
	}
	op, ok, err := m.operation(key, newer)
	return ok && op.prev == revision, err
}
