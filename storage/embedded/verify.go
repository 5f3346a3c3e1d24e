package embedded

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// Problem is one thing that is wrong with a store.
type Problem struct {
	// Where is what it is about: a key, a revision of the log, a file.
	Where string
	Text  string
}

func (p Problem) String() string { return p.Where + ": " + p.Text }

// Verified says what Verify has looked at.
type Verified struct {
	Revision, Compacted int64
	Files               int // of the database
	Keys                int64
	Versions            int64
	LogRecords          int64
	Expiring            int64 // records of the expiry index
}

// Verify reads everything there is and reports what cannot be right: blocks whose
// checksum is wrong, records that cannot be read, versions and log records that do
// not name each other, an expiry index that does not agree with the deadlines. check
// is shown the newest version of each key and says what is wrong with it. The
// error is for what ended Verify early, after what it had reported.
func (r *Reader) Verify(ctx context.Context, check func(Record) []string, report func(Problem)) (Verified, error) {
	v := &verifier{
		db: r.store.db, report: report, check: check,
		seen: Verified{Revision: r.revision, Compacted: r.compacted},
	}
	if err := r.store.checkMark(r.revision); err != nil && r.damage == nil {
		v.problem("database", "%s", oneLine(err))
	}
	steps := []func(context.Context) error{
		func(context.Context) error { return v.files(r.store.opts) },
		v.order, func(context.Context) error { return r.damage },
	}
	if r.damage == nil {
		steps = append(steps, v.numbers, v.log, v.versions, v.expiry)
	}
	for _, step := range steps {
		_, err := guardPanic(func() (struct{}, error) { return struct{}{}, step(ctx) })
		if ctx.Err() != nil {
			return v.seen, ctx.Err()
		}
		if err != nil {
			// The rest may still be readable.
			v.problem("database", "%s", oneLine(err))
		}
	}
	return v.seen, nil
}

// verifier does the steps of Verify. Each returns an error for what cannot be read.
type verifier struct {
	db     *pebble.DB
	report func(Problem)
	check  func(Record) []string
	seen   Verified
	// firstLogged is the revision of the first log record; 0 if there is none.
	firstLogged int64
}

func (v *verifier) problem(where, format string, args ...any) {
	v.report(Problem{where, fmt.Sprintf(format, args...)})
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func revisionName(revision int64) string { return fmt.Sprintf("revision %d", revision) }

// files verifies the checksum of every block of every table.
func (v *verifier) files(o Options) error {
	levels, err := v.db.SSTables()
	if err != nil {
		return err
	}
	var names []string
	for _, level := range levels {
		for _, table := range level {
			names = append(names, fmt.Sprintf("%06d.sst", uint64(table.BackingSSTNum)))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	options := o.pebbleOptions(pebble.DefaultLogger, nil)
	options.EnsureDefaults()
	for _, name := range names {
		v.seen.Files++
		if err := verifyTable(o, filepath.Join(o.Dir, name), options.MakeReaderOptions()); err != nil {
			v.problem("file "+name, "%s", oneLine(err))
		}
	}
	return nil
}

func verifyTable(o Options, path string, options sstable.ReaderOptions) error {
	f, err := o.FS.Open(path)
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(context.Background(), readable, options)
	if err != nil {
		return errors.Join(err, readable.Close())
	}
	return errors.Join(r.ValidateBlockChecksums(), r.Close())
}

// order verifies that keys and their sequence are in order in every level.
func (v *verifier) order(context.Context) error { return v.db.CheckLevels(nil) }

// numbers verifies that every record is of a known space, and the store's own
// numbers.
func (v *verifier) numbers(context.Context) error {
	it, err := v.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer it.Close()
	spaces := []byte{spaceExpiry, spaceLog, spaceMeta, spaceVersion}
	for ok := it.First(); ok; {
		key := it.Key()
		switch space := key[0]; {
		case !slices.Contains(spaces, space):
			v.problem(fmt.Sprintf("record %q", key), "of no known kind")
			ok = it.Next()
		case space != spaceMeta:
			ok = it.SeekGE([]byte{space + 1})
		default:
			v.number(it)
			ok = it.Next()
		}
	}
	return it.Error()
}

// number verifies one of the store's own records.
func (v *verifier) number(it *pebble.Iterator) {
	name := string(it.Key())
	value, err := it.ValueAndErr()
	if err == nil {
		switch name {
		case metaFormat, metaCompacted:
			_, err = decodeNumber(value)
		case metaClock:
			_, err = decodeClock(value)
		case metaMarks:
			_, err = decodeMarks(value)
		default:
			err = errors.New("of no known kind")
		}
	}
	if err != nil {
		v.problem(fmt.Sprintf("record %q", name), "%s", oneLine(err))
	}
}

// log verifies that the log has no gap above the compaction revision and that
// every change it names has its versions.
func (v *verifier) log(ctx context.Context) error {
	it, err := v.db.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceLog}, UpperBound: []byte{spaceLog + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	versions, err := v.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer versions.Close()
	want := max(v.seen.Compacted, 1) + 1 // an empty store is at revision 1
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		v.seen.LogRecords++
		revision, err := parseLogKey(it.Key())
		if err != nil {
			v.problem(fmt.Sprintf("record %q", it.Key()), "%s", oneLine(err))
			continue
		}
		if v.firstLogged == 0 {
			v.firstLogged = revision
		}
		if revision > want {
			v.problem(revisionName(want), "the log goes on at revision %d", revision)
		}
		want = max(want, revision+1)
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		err = decodeLog(value, func(key []byte, op logOp) error {
			op.key = string(key)
			return v.logged(versions, op, revision)
		})
		if errors.Is(err, errCorrupt) {
			v.problem(revisionName(revision), "%s", oneLine(err))
		} else if err != nil {
			return err
		}
	}
	return it.Error()
}

// logged verifies the versions that one operation of the log names.
func (v *verifier) logged(it *pebble.Iterator, op logOp, revision int64) error {
	found, ok, err := seekVersion(it, nil, op.key, revision)
	if err != nil {
		return err
	}
	if !ok || found.revision != revision {
		v.problem("key "+op.key, "the log has a change at revision %d, the index has not", revision)
	} else if found.tombstone != op.deleted {
		v.problem("key "+op.key, "log and index do not agree whether revision %d deleted it", revision)
	}
	before, ok, err := seekVersion(it, nil, op.key, revision-1)
	if err != nil {
		return err
	}
	live := int64(0)
	if ok && !before.tombstone {
		live = before.revision
	}
	if live != op.prev {
		v.problem(
			"key "+op.key, "the log has revision %d as what was before revision %d, the index has %d", op.prev, revision, live,
		)
	} else if live != 0 && op.prevSize != 0 && op.prevSize != int64(before.size()) {
		v.problem(
			"key "+op.key, "the log has %d bytes as the size of revision %d, which has %d", op.prevSize, live, before.size(),
		)
	}
	return nil
}

// versions verifies every version: that it can be read, that the log names it
// where the log reaches, and that below the log only what was newest is left.
func (v *verifier) versions(ctx context.Context) error {
	it, err := v.db.NewIter(versionSpan())
	if err != nil {
		return err
	}
	defer it.Close()
	k := keyState{}
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		v.seen.Versions++
		encoded := it.Key()
		key, revision, err := splitVersionKey(encoded)
		if err != nil {
			v.problem(fmt.Sprintf("record %q", encoded), "%s", oneLine(err))
			continue
		}
		newest := string(key) != k.key
		if newest {
			k = keyState{key: string(key)}
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		found, err := decodeVersion(value, revision)
		if err != nil {
			v.problem("key "+k.key, "revision %d: %s", revision, oneLine(err))
			continue
		}
		if err := v.version(&k, found); err != nil {
			return err
		}
		if newest && !found.tombstone {
			if err := v.live(k.key, found); err != nil {
				return err
			}
		}
	}
	return it.Error()
}

// keyState is what is known of a key whose versions are walked, the newest first.
type keyState struct {
	key string
	// newer says that a newer version was there, replaced what the log has as the
	// revision before that one.
	newer    bool
	replaced int64
}

func (v *verifier) version(k *keyState, found version) error {
	where, revision := "key "+k.key, found.revision
	if revision > v.seen.Revision {
		v.problem(where, "revision %d is above the store's, %d", revision, v.seen.Revision)
	}
	if !found.tombstone && (found.create < 1 || found.create > revision) {
		v.problem(where, "revision %d says that the key was made at revision %d", revision, found.create)
	}
	op, logged, err := v.logOf(k.key, revision)
	if err != nil {
		return err
	}
	switch {
	case logged:
	case revision > v.seen.Compacted:
		v.problem(where, "the index has a change at revision %d, the log has not", revision)
	case found.tombstone:
		v.problem(where, "the deletion at revision %d is left below the log", revision)
	case k.newer && k.replaced != revision:
		v.problem(where, "revision %d is left below the log, and was replaced", revision)
	}
	k.newer, k.replaced = true, op.prev
	return nil
}

// logOf returns the operation on key that the log has at revision.
func (v *verifier) logOf(key string, revision int64) (op logOp, ok bool, err error) {
	if v.firstLogged == 0 || revision < v.firstLogged {
		return op, false, nil
	}
	value, closer, err := v.db.Get(logKey(revision))
	if errors.Is(err, pebble.ErrNotFound) {
		return op, false, nil
	}
	if err != nil {
		return op, false, err
	}
	defer closer.Close()
	err = decodeLog(value, func(k []byte, found logOp) error {
		if string(k) == key {
			op, ok = found, true
			op.key = key
		}
		return nil
	})
	if errors.Is(err, errCorrupt) {
		err = nil // reported with the log
	}
	return op, ok, err
}

// live verifies the newest version of a key that is there.
func (v *verifier) live(key string, found version) error {
	v.seen.Keys++
	if found.deadline != 0 {
		_, closer, err := v.db.Get(appendExpiryKey(nil, found.deadline, key))
		switch {
		case errors.Is(err, pebble.ErrNotFound):
			v.problem("key "+key, "it has a time to live, but is not in the expiry index: it would never be removed")
		case err != nil:
			return err
		default:
			closer.Close()
		}
	}
	for _, text := range v.check(Record{found.entry(key), found.deadline}) {
		v.problem("key "+key, "%s", text)
	}
	return nil
}

// expiry verifies that what the expiry index names is there and due then.
func (v *verifier) expiry(ctx context.Context) error {
	it, err := v.db.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceExpiry}, UpperBound: []byte{spaceExpiry + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	versions, err := v.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer versions.Close()
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		v.seen.Expiring++
		deadline, key, err := parseExpiryKey(it.Key())
		var revision int64
		if err == nil {
			var value []byte
			if value, err = it.ValueAndErr(); err != nil {
				return err
			}
			revision, err = decodeNumber(value)
		}
		if err != nil {
			v.problem(fmt.Sprintf("record %q", it.Key()), "%s", oneLine(err))
			continue
		}
		found, ok, err := seekVersion(versions, nil, string(key), maxRevision)
		if err != nil {
			return err
		}
		if !ok || found.tombstone || found.revision != revision || found.deadline != deadline {
			v.problem(
				"key "+string(key), "the expiry index has a deadline for its revision %d, which is not its newest or has another",
				revision,
			)
		}
	}
	return it.Error()
}
