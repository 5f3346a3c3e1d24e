package embedded

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Repair makes a store with damaged tables usable again. Nothing that it says exists is missing without an error afterwards:
//
//  1. Each damaged table is replaced by one with the records that can be read (tablerescue.go). It has the same size and sequence
//     numbers, so that the database takes it for the table that it knows. The damaged file is kept in the folder DamagedName.
//  2. The store is opened. The log names every version of the time that it covers. A version that the log names and that is not there
//     is lost: in its place comes a value that no codec can read, so that the object is there, cannot be read, and can be deleted like
//     any object that cannot be read (KEP-3926).
//  3. Objects that have not changed since the log begins are not named by it. Where such objects may be lost, an entry with a name of its
//     own takes their place, so that lists of the resource fail until it is deleted.
//  4. Lost log records end what can be watched and read of the past: the compaction revision rises above them.
//  5. The expiry index is made again from the deadlines.
//
// Example: a block of a table is damaged, with revisions 5 and 9 of /a and revision 7 of /b. The log says that revision 9 put /a after
// revision 5, and revision 7 put /b, which did not exist before. After a repair, /a at 9, /a at 5 and /b at 7 cannot be read.

// DamagedName is the folder in the directory of a store in which Repair keeps damaged tables.
const DamagedName = "damaged"

// lostPrefix is the beginning of a value that Repair writes in place of one that is lost. No encoding of an object begins so.
const lostPrefix = "keelson:lost:"

// IsLost reports whether a value stands for one that was lost.
func IsLost(value []byte) bool { return bytes.HasPrefix(value, []byte(lostPrefix)) }

// Lost is something that Repair could not save.
type Lost struct {
	// Key is the key whose newest version is lost; for objects of unknown names, that of the entry which takes their place.
	Key string
	// Revision is the lost version, or the one that says that a newer one than Older may be lost; 0 for objects of unknown names.
	Revision int64
	// Older is the newest version of the key that can still be read, 0 if there is none.
	Older int64
	// After and Before are the keys between which objects of unknown names were; both are "" for an object with a name.
	After, Before string
}

func (l Lost) String() string {
	switch {
	case l.Revision == 0:
		return fmt.Sprintf("lost, if there were any: objects after %q and before %q that had not changed for longer than the history is "+
			"kept; %s stands for them", l.After, l.Before, l.Key)
	case l.Older != 0:
		return fmt.Sprintf("lost: %s at revision %d; its revision %d can be read", l.Key, l.Revision, l.Older)
	}
	return fmt.Sprintf("lost: %s at revision %d", l.Key, l.Revision)
}

// Repaired is what Repair has done.
type Repaired struct {
	Tables []string // the damaged ones
	Lost   []Lost   // newest versions
	Past   int      // older versions that are lost
	// LogLost is the highest revision whose log record is lost, 0 if none is. Watches and reads of the past begin above it.
	LogLost int64
}

// RepairOptions are the options of Repair.
type RepairOptions struct {
	// UseOlder puts the newest older version that can be read in the place of a lost one. Clients would see time go back, so
	// it is only for a copy whose revisions will be others.
	UseOlder bool
}

// Repair repairs the store in o.Dir, which no process may use. It may be called again if it was interrupted. It fails if what the
// database knows of its tables (MANIFEST) is damaged, and if its log of writes is.
func Repair(ctx context.Context, o Options, ro RepairOptions) (done Repaired, err error) {
	o = o.withDefaults()
	lock, err := pebble.LockDirectory(o.Dir, o.FS)
	if err != nil {
		return done, fmt.Errorf("data directory %s is used by another process: %w", o.Dir, ErrLocked)
	}
	gaps, err := replaceTables(ctx, &o, lock, &done)
	if err = errors.Join(err, lock.Close()); err != nil {
		return done, err
	}
	s := &Store{opts: o}
	s.lifetime.stopped, s.lifetime.stop = context.WithCancel(context.Background())
	defer s.lifetime.stop()
	h := &corruptionHandler{store: s, logged: map[string]bool{}}
	if err := s.openDB(func(p *pebble.Options) { h.logger, p.EventListener = p.Logger, h.listener() }); err != nil {
		return done, err
	}
	m := &mender{store: s, options: ro, gaps: gaps, done: &done}
	_, err = guardPanic(func() (struct{}, error) { return struct{}{}, m.run(ctx) })
	if err == nil {
		err = s.db.Flush()
	}
	if err = errors.Join(err, s.closeDB()); err != nil {
		return done, err
	}
	if err := o.FS.Remove(o.FS.PathJoin(o.Dir, DamagedName, pendingName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return done, err
	}
	return done, nil
}

// tableGap is a gap of a table.
type tableGap struct {
	gap
	table string
}

// pendingName is a file in DamagedName with the gaps of tables that were replaced, while the database does not say yet what is lost. A
// repair that is repeated after an interruption finds undamaged tables.
const pendingName = "pending.json"

// pendingGap is a gap in that file.
type pendingGap struct {
	Table         string
	After, Before []byte
}

// readPending returns the gaps of a repair that was interrupted.
func readPending(o *Options) (gaps []tableGap, err error) {
	content, err := readFile(o.FS, o.FS.PathJoin(o.Dir, DamagedName, pendingName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var list []pendingGap
	if err == nil {
		err = json.Unmarshal(content, &list)
	}
	for _, p := range list {
		gaps = append(gaps, tableGap{gap{p.After, p.Before}, p.Table})
	}
	return gaps, err
}

// writePending writes the gaps before a table with them is replaced.
func writePending(o *Options, gaps []tableGap) error {
	var list []pendingGap
	for _, g := range gaps {
		list = append(list, pendingGap{g.table, g.after, g.before})
	}
	content, err := json.Marshal(list)
	if err != nil {
		return err
	}
	name := o.FS.PathJoin(o.Dir, DamagedName, pendingName)
	f, err := o.FS.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err = f.Write(content); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return errors.Join(o.FS.Rename(name+".new", name), syncFolder(o.FS, o.FS.PathJoin(o.Dir, DamagedName)))
}

// syncFolder makes the names in a folder durable.
func syncFolder(fs vfs.FS, name string) error {
	d, err := fs.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// replaceTables replaces the damaged tables.
func replaceTables(ctx context.Context, o *Options, lock *pebble.Lock, done *Repaired) (gaps []tableGap, err error) {
	options := o.pebbleOptions(probing{}, nil)
	options.EnsureDefaults()
	sizes, err := wrongSizes(o, lock)
	if err != nil {
		return nil, err
	}
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return nil, err
	}
	for name := range sizes { // those that are missing
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if gaps, err = readPending(o); err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !strings.HasSuffix(name, tableSuffix) {
			continue
		}
		found, size, err := examineTable(o, options, name, sizes[name])
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue
		}
		for _, g := range found.gaps {
			gaps = append(gaps, tableGap{g, name})
		}
		if err := replaceTable(o, found, name, size, gaps); err != nil {
			return nil, fmt.Errorf("cannot repair %s: %w", o.FS.PathJoin(o.Dir, name), err)
		}
		done.Tables = append(done.Tables, name)
	}
	return gaps, syncFolder(o.FS, o.Dir)
}

// examineTable returns what can be read of a table, and the size that the database knows; nil if the table is not damaged. size is that
// size if the file has another one, or is missing, else 0.
func examineTable(o *Options, options *pebble.Options, name string, size int64) (*rescue, int64, error) {
	file := o.FS.PathJoin(o.Dir, name)
	content, err := readFile(o.FS, file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, 0, err
	}
	if size == 0 {
		if verifyTable(*o, file, options.MakeReaderOptions()) == nil {
			return nil, 0, nil
		}
		size = int64(len(content))
	}
	found := rescueTable(options, content)
	return &found, size, nil
}

// replaceTable replaces a table by what could be read of it, and keeps the file. gaps are all that were found so far.
func replaceTable(o *Options, found *rescue, name string, size int64, gaps []tableGap) error {
	file, aside := o.FS.PathJoin(o.Dir, name), o.FS.PathJoin(o.Dir, DamagedName)
	const private = 0o700
	if err := o.FS.MkdirAll(aside, private); err != nil {
		return err
	}
	if err := writePending(o, gaps); err != nil {
		return err
	}
	replacement := file + ".repaired"
	if err := found.write(o.FS, replacement, size); err != nil {
		return err
	}
	// A link, so that there is a file of this name at every moment. One of the same name may be there from a repair before.
	if err := vfs.LinkOrCopy(o.FS, file, freeName(o.FS, o.FS.PathJoin(aside, name))); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return o.FS.Rename(replacement, file)
}

// freeName returns name, or name with the first number after it that is not taken.
func freeName(fs vfs.FS, name string) string {
	free := name
	for i := 2; ; i++ {
		if _, err := fs.Stat(free); err != nil {
			return free
		}
		free = name + "." + strconv.Itoa(i)
	}
}

var (
	missingTable = regexp.MustCompile(`file (\d+) \(type sstable\) unknown to the objstorage provider`)
	wrongSize    = regexp.MustCompile(`L\d+: (\d+): object size mismatch \([^)]*\): \d+ \(disk\) != (\d+) \(MANIFEST\)`)
)

// probing is the logger of a database that is opened to see what is wrong with it: its errors are returned, and not logged.
type probing struct{}

func (probing) Infof(string, ...any)  {}
func (probing) Errorf(string, ...any) {}

// Fatalf panics, because the database cannot continue.
func (probing) Fatalf(format string, args ...any) { panic(fmt.Errorf(format, args...)) }

// wrongSizes returns the sizes, as the database knows them, of the tables that are missing or have another size. Pebble has no function that
// reads them: they are in the errors of opening it. A missing table is there, empty, afterwards.
func wrongSizes(o *Options, lock *pebble.Lock) (map[string]int64, error) {
	sizes := map[string]int64{}
	for { // each round finds the sizes of the tables that the one before has found missing
		options := o.pebbleOptions(probing{}, lock)
		options.ReadOnly, options.ErrorIfNotExists = true, true
		options.EventListener = &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
		db, err := guardPanic(func() (*pebble.DB, error) { return pebble.Open(o.Dir, options) })
		if err == nil {
			return sizes, db.Close()
		}
		text, before := err.Error(), len(sizes)
		for _, m := range missingTable.FindAllStringSubmatch(text, -1) {
			f, err := o.FS.Create(o.FS.PathJoin(o.Dir, m[1]+tableSuffix), vfs.WriteCategoryUnspecified)
			if err != nil {
				return nil, err
			}
			sizes[m[1]+tableSuffix] = 0
			if err := f.Close(); err != nil {
				return nil, err
			}
		}
		known := false
		for _, m := range wrongSize.FindAllStringSubmatch(text, -1) {
			known = true
			if sizes[m[1]+tableSuffix], err = strconv.ParseInt(m[2], 10, 64); err != nil {
				return nil, err
			}
		}
		if len(sizes) == before {
			if known {
				return sizes, nil
			}
			return nil, openError(o.Dir, err)
		}
	}
}

// mender repairs what is in the database.
type mender struct {
	store   *Store
	options RepairOptions
	gaps    []tableGap
	done    *Repaired

	batch       *pebble.Batch // written when all steps are done
	versions    *pebble.Iterator
	revision    int64 // of the store
	compacted   int64
	firstLogged int64              // 0 if there is no log record
	lost        map[string]int64   // by key, the newest revision that is lost
	deadlines   map[expiring]int64 // of the expiry index
}

// expiring is a version that expires.
type expiring struct {
	key      string
	revision int64
}

func (m *mender) run(ctx context.Context) (err error) {
	s := m.store
	m.batch, m.lost = s.db.NewIndexedBatch(), map[string]int64{}
	if m.revision, m.compacted, _, err = s.position(); err != nil {
		return err
	}
	// The revision file has the highest revision that clients have seen, also if its log record is lost.
	m.revision = max(m.revision, s.readRevisionFile())
	if m.versions, err = s.db.NewIter(versionSpan()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.versions.Close()) }()
	for _, step := range []func(context.Context) error{m.expiry, m.log, m.logGaps, m.unnamed, m.unreachable} {
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
		mustSucceed(m.batch.Delete(it.Key(), nil)) // unreachable writes those that are right
	}
	return it.Error()
}

// log compares the log with the versions, and writes values in place of those that are lost.
func (m *mender) log(ctx context.Context) error {
	it, err := m.store.db.NewIter(logSpan())
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
			m.done.LogLost = revision - 1
		}
		want = max(want, revision+1)
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		err = decodeLog(value, func(key []byte, op logOp) error {
			if err := m.version(string(key), revision, op.deleted); err != nil || op.prev == 0 {
				return err
			}
			return m.version(string(key), op.prev, false)
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
	if deleted { // a deletion has no value that could be lost
		m.set(key, revision, version{create: revision, tombstone: true})
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

// replaceLost finds which of the lost versions were the newest ones of their keys.
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
		for ok && (newest.tombstone || IsLost(newest.value)) { // the newest before that can be read
			if newest, ok, err = seekVersion(m.versions, nil, key, newest.revision-1); err != nil {
				return err
			}
		}
		if ok {
			lost.Older = newest.revision
			if m.options.UseOlder {
				m.set(key, revision, version{create: newest.create, deadline: newest.deadline, value: newest.value})
			}
		}
		m.done.Lost = append(m.done.Lost, lost)
	}
	return nil
}

// unnamed handles what may be lost and is not named by the log, in one revision of its own. All versions are named by a log that begins
// with the store.
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
		if g.after == nil {
			g.after = bounds[g.table].after
		}
		if g.before == nil {
			g.before = bounds[g.table].before
		}
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

// unnamedLoss is the revision that marks what may be lost.
type unnamedLoss struct {
	*mender
	revision int64
	record   []byte          // of the log
	taken    map[string]bool // the keys in it
}

// gap marks what may be lost in a gap: each folder of keys gets an entry that stands for objects of which nothing is known. If log records
// are lost, a key whose newest version may be in the gap is lost too: what is left of it is older.
func (u *unnamedLoss) gap(g tableGap) error {
	lost := Lost{After: keyOf(g.after), Before: keyOf(g.before)}
	folders := map[string]bool{}
	for _, near := range []string{lost.After, lost.Before} {
		if near != "" {
			folders[path.Dir(near)] = true
		}
	}
	it, err := u.batch.NewIter(versionSpan()) // with what the steps before have written
	if err != nil {
		return err
	}
	defer it.Close()
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
		newerInGap := bytes.Compare(it.Key(), g.after) > 0 // a newer version of the key would be before this one
		if newerInGap && v.revision < u.done.LogLost && !IsLost(v.value) {
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

// lose writes an entry that stands for what is lost, after the newest version that is left.
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
	if lost == 0 {
		return nil
	}
	if lost > m.compacted {
		m.compacted = lost
		mustSucceed(m.batch.Set([]byte(metaCompacted), encodeNumber(lost), nil))
	}
	value, closer, err := m.store.db.Get([]byte(metaKept))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	k, err := decodeKept(value)
	if err = errors.Join(err, closer.Close()); err != nil {
		return err
	}
	for i := range k.Rules {
		k.Rules[i].Floor = k.Rules[i].Floor.later(mark{Revision: lost})
	}
	k.Window, k.Passed, k.Bytes = mark{Revision: m.compacted}, map[int64]mark{}, 0 // all records are examined again
	return m.batch.Set([]byte(metaKept), k.encode(), nil)
}

// unreachable removes the versions at or below the lost log records that nothing names any more: those before another version whose log
// record is lost, and deletions. It makes the expiry index again.
func (m *mender) unreachable(ctx context.Context) error {
	it, err := m.batch.NewIter(versionSpan())
	if err != nil {
		return err
	}
	defer it.Close()
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
		if revision <= m.done.LogLost {
			gone, err := m.unnamedVersion(last, revision, newer, v.tombstone)
			if err != nil {
				return err
			}
			if gone {
				mustSucceed(m.batch.Delete(it.Key(), nil))
				continue
			}
		}
		newer = revision
	}
	return it.Error()
}

// unnamedVersion reports whether no log record will let a compaction remove a version: it is a deletion without its record, or was replaced by
// the revision newer, which has none.
func (m *mender) unnamedVersion(key string, revision, newer int64, deleted bool) (bool, error) {
	logged := func(revision int64) (ok bool, err error) {
		value, closer, err := m.store.db.Get(logKey(revision))
		if errors.Is(err, pebble.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		defer closer.Close()
		return ok, decodeLog(value, func(k []byte, _ logOp) error {
			ok = ok || string(k) == key
			return nil
		})
	}
	if newer != 0 {
		ok, err := logged(newer)
		return !ok && newer <= m.done.LogLost, err
	}
	if !deleted {
		return false, nil
	}
	ok, err := logged(revision)
	return !ok, err
}
