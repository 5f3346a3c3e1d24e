package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// Problem is one defect of a store that Verify has found.
type Problem struct {
	// Where names the defective thing: a key, a revision of the log, a file.
	Where string
	Text  string
}

func (p Problem) String() string { return p.Where + ": " + p.Text }

// Checks examine data that the store cannot interpret. Each returns the defects that it finds. A nil function
// checks nothing.
type Checks struct {
	Value  func(Record) []string // called for every version of every key
	Author func(by []byte) error // called for the author of each change in the log (storage.Txn.By)
}

// Verified counts what Verify has examined.
type Verified struct {
	Revision, Compacted int64
	Files               int // tables of the database
	Keys                int64
	Versions            int64
	LogRecords          int64
	Expiring            int64 // records of the expiry index
	DamagedFiles        int   // tables that cannot be read as a whole
}

// Verify reads the whole store and reports its defects: blocks with a wrong checksum, records that cannot be read,
// versions without a log record and log records without their versions, a wrong size of the kept history, and
// differences between the expiry index and the deadlines. Verify returns an error only if ctx ends.
func (r *Reader) Verify(ctx context.Context, check Checks, report func(Problem)) (Verified, error) {
	v := &verifier{
		db: r.store.db.DB, report: report, check: check,
		verified: Verified{Revision: r.revision, Compacted: r.compacted},
	}
	if err := r.store.revisionFile.check(r.revision); err != nil && r.readErr == nil {
		v.problem("database", "%s", singleLine(err))
	}
	steps := []func(context.Context) error{
		func(context.Context) error { return v.checksums(r.store.opts) },
		v.keyOrder, func(context.Context) error { return r.readErr },
	}
	if r.readErr == nil {
		steps = append(steps, v.metaRecords, v.logRecords, v.versions, v.expiry)
	}
	for _, step := range steps {
		_, err := guardPanic(func() (struct{}, error) { return struct{}{}, step(ctx) })
		if ctx.Err() != nil {
			return v.verified, ctx.Err()
		}
		if err != nil {
			// Other parts of the store may still be readable. A damaged file was reported already.
			if v.verified.DamagedFiles == 0 || !pebble.IsCorruptionError(err) {
				v.problem("database", "%s", singleLine(err))
			}
		}
	}
	return v.verified, nil
}

// verifier runs the steps of Verify. A step returns an error if it cannot continue.
type verifier struct {
	db       *pebble.DB
	report   func(Problem)
	check    Checks
	verified Verified
	// firstLogged is the revision of the first log record, 0 if there is none.
	firstLogged int64
	kept        kept
	keptBytes   int64 // size of the kept history up to the revision that the recorded size includes
}

// problem reports a problem.
func (v *verifier) problem(where, format string, args ...any) {
	v.report(Problem{where, fmt.Sprintf(format, args...)})
}

// singleLine returns the text of err with all white space, line breaks included, replaced by single spaces.
func singleLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func revisionName(revision int64) string { return fmt.Sprintf("revision %d", revision) }

// checksums verifies the checksum of every block of every table.
func (v *verifier) checksums(o Options) error {
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
		v.verified.Files++
		if err := verifyTable(o, filepath.Join(o.Dir, name), options.MakeReaderOptions()); err != nil {
			v.verified.DamagedFiles++
			v.problem("file "+name, "%s", damageIn(err))
		}
	}
	return nil
}

// verifyTable verifies the checksums of the blocks of one table.
func verifyTable(o Options, path string, options sstable.ReaderOptions) error {
	f, err := checkBlocks(&o).Open(path)
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
	_, err = guardPanic(func() (struct{}, error) {
		return struct{}{}, errors.Join(r.ValidateBlockChecksums(), validateValueBlocks(f, r))
	})
	return errors.Join(err, r.Close())
}

// validateValueBlocks verifies the checksums of the blocks that ValidateBlockChecksums leaves out. f is the file
// of the table. It compares each block with its checksum when the block is read.
func validateValueBlocks(f io.ReaderAt, r *sstable.Reader) error {
	layout, err := r.Layout()
	if err != nil {
		return nil // ValidateBlockChecksums returns it too
	}
	for _, b := range layout.ValueBlock {
		if _, err := f.ReadAt(make([]byte, int(b.Length)+blockTrailerSize), int64(b.Offset)); err != nil {
			return err
		}
	}
	return nil
}

// keyOrder verifies that keys and their sequence numbers are in order in every level.
func (v *verifier) keyOrder(context.Context) error { return v.db.CheckLevels(nil) }

// metaRecords verifies that every record has a known prefix, and that the meta records can be decoded.
func (v *verifier) metaRecords(context.Context) error {
	it, err := v.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer it.Close()
	spaces := []byte{prefixExpiry, prefixLog, prefixMeta, prefixVersion}
	for ok := it.First(); ok; {
		key := it.Key()
		switch space := key[0]; {
		case !slices.Contains(spaces, space):
			v.problem(fmt.Sprintf("record %q", key), "its prefix is unknown")
			ok = it.Next()
		case space != prefixMeta:
			ok = it.SeekGE([]byte{space + 1})
		default:
			v.metaRecord(it)
			ok = it.Next()
		}
	}
	return it.Error()
}

// metaRecord verifies the meta record at the position of the iterator.
func (v *verifier) metaRecord(it *pebble.Iterator) {
	name := string(it.Key())
	value, err := it.ValueAndErr()
	if err == nil {
		switch name {
		case metaFormat, metaCompacted:
			_, err = decodeNumber(value)
		case metaClock:
			_, err = decodeClock(value)
		case metaSamples:
			_, err = decodeSamples(value)
		case metaHeld:
			_, _, err = decodeHeld(value)
		case metaKept:
			v.kept, err = decodeKept(value)
		default:
			err = errors.New("its prefix is unknown")
		}
	}
	if err != nil {
		v.problem(fmt.Sprintf("record %q", name), "%s", singleLine(err))
	}
}

// records returns an iterator over the records with a prefix, and an iterator over all records, to find the
// versions that the former name.
func (v *verifier) records(prefix byte) (it, versions *pebble.Iterator, err error) {
	it, err = v.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
	if err != nil {
		return nil, nil, err
	}
	if versions, err = v.db.NewIter(nil); err != nil {
		return nil, nil, errors.Join(err, it.Close())
	}
	return it, versions, nil
}

// logRecords verifies that the log has no gap above the compaction revision, and that all versions exist that the
// log names.
func (v *verifier) logRecords(ctx context.Context) error {
	it, versions, err := v.records(prefixLog)
	if err != nil {
		return err
	}
	defer it.Close()
	defer versions.Close()
	want := max(v.verified.Compacted, 1) + 1 // an empty store is at revision 1
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		v.verified.LogRecords++
		revision, err := parseLogKey(it.Key())
		if err != nil {
			v.problem(fmt.Sprintf("record %q", it.Key()), "%s", singleLine(err))
			continue
		}
		if v.firstLogged == 0 {
			v.firstLogged = revision
		}
		if revision > want {
			v.problem(revisionName(want), "it is missing in the log, which continues at revision %d", revision)
		}
		want = max(want, revision+1)
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		w, _, err := cutWritten(value)
		if err == nil && len(w.by) > 0 && v.check.Author != nil {
			if err := v.check.Author(w.by); err != nil {
				v.problem(revisionName(revision), "%s", singleLine(err))
			}
		}
		err = decodeLog(value, func(key []byte, op logOp) error {
			op.key = string(key)
			if revision <= v.kept.Passed[0].Revision {
				v.keptBytes += op.keptBytes(len(key), len(w.by))
			}
			return v.logOperation(versions, op, revision)
		})
		if errors.Is(err, errCorrupt) {
			v.problem(revisionName(revision), "%s", singleLine(err))
		} else if err != nil {
			return err
		}
	}
	if v.keptBytes != v.kept.Bytes && ctx.Err() == nil {
		v.problem(fmt.Sprintf("record %q", metaKept), "it says that %d bytes are kept, and the log has %d", v.kept.Bytes, v.keptBytes)
	}
	return it.Error()
}

// logOperation verifies the versions that one operation of the log names: the one that it wrote and the one before.
func (v *verifier) logOperation(it *pebble.Iterator, op logOp, revision int64) error {
	found, ok, err := seekVersion(it, nil, op.key, revision)
	if err != nil {
		return err
	}
	if !ok || found.revision != revision {
		v.problem("key "+op.key, "the log has a change at revision %d, but there is no such version", revision)
	} else if found.tombstone != op.deleted {
		v.problem("key "+op.key, "the log and the version disagree whether revision %d is a deletion", revision)
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
			"key "+op.key, "in the log revision %d is before revision %d, among the versions it is %d", op.prev, revision, live,
		)
	} else if live != 0 && op.prevSize != 0 && op.prevSize != int64(before.size()) && !IsLost(before.value) {
		v.problem(
			"key "+op.key, "in the log the size is %d bytes for revision %d, whose version has %d", op.prevSize, live,
			before.size(),
		)
	}
	return nil
}

// versions verifies every version: that it can be decoded, that the log names it if the log reaches back to its
// revision, and that versions from before the log are the newest ones of their keys.
func (v *verifier) versions(ctx context.Context) error {
	it, err := v.db.NewIter(versionSpan())
	if err != nil {
		return err
	}
	defer it.Close()
	k := keyState{}
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		v.verified.Versions++
		encoded := it.Key()
		key, revision, err := splitVersionKey(encoded)
		if err != nil {
			v.problem(fmt.Sprintf("record %q", encoded), "%s", singleLine(err))
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
			v.problem("key "+k.key, "revision %d: %s", revision, singleLine(err))
			continue
		}
		if err := v.version(&k, found); err != nil {
			return err
		}
		if found.tombstone {
			continue
		}
		if v.check.Value != nil {
			for _, text := range v.check.Value(Record{Entry: found.entry(k.key), Deadline: found.deadline}) {
				v.problem("key "+k.key, "%s", text)
			}
		}
		if newest {
			if err := v.newestVersion(k.key, found); err != nil {
				return err
			}
		}
	}
	return it.Error()
}

// keyState is the state of the walk over the versions of one key, from the newest to the oldest.
type keyState struct {
	key string
	// hasNewer is set when a newer version of the key was read. loggedPrev is the revision of the version before
	// that newer one, according to the log.
	hasNewer   bool
	loggedPrev int64
}

// version verifies one version of a key.
func (v *verifier) version(k *keyState, found version) error {
	where, revision := "key "+k.key, found.revision
	if revision > v.verified.Revision {
		v.problem(where, "revision %d is above the revision of the store, %d", revision, v.verified.Revision)
	}
	if !found.tombstone && (found.create < 1 || found.create > revision) {
		v.problem(where, "revision %d has the wrong create revision %d", revision, found.create)
	}
	op, logged, err := v.operationAt(k.key, revision)
	if err != nil {
		return err
	}
	switch {
	case logged:
	case revision > v.verified.Compacted:
		v.problem(where, "there is a version of revision %d, but no log record of it", revision)
	case found.tombstone:
		v.problem(where, "the deletion at revision %d should have been compacted", revision)
	case k.hasNewer && k.loggedPrev != revision:
		v.problem(where, "revision %d was replaced and should have been compacted", revision)
	}
	k.hasNewer, k.loggedPrev = true, op.prev
	return nil
}

// operationAt returns the operation on key in the log record of revision, if there is one.
func (v *verifier) operationAt(key string, revision int64) (op logOp, ok bool, err error) {
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
		err = nil // logRecords reports it
	}
	return op, ok, err
}

// newestVersion verifies that the newest version of an existing key with a deadline has a record in the expiry
// index.
func (v *verifier) newestVersion(key string, found version) error {
	v.verified.Keys++
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
	return nil
}

// expiry verifies that each record of the expiry index names the newest version of its key and the deadline of that
// version.
func (v *verifier) expiry(ctx context.Context) error {
	it, versions, err := v.records(prefixExpiry)
	if err != nil {
		return err
	}
	defer it.Close()
	defer versions.Close()
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		v.verified.Expiring++
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
			v.problem(fmt.Sprintf("record %q", it.Key()), "%s", singleLine(err))
			continue
		}
		found, ok, err := seekVersion(versions, nil, string(key), maxRevision)
		if err != nil {
			return err
		}
		if !ok || found.tombstone || found.revision != revision || found.deadline != deadline {
			v.problem(
				"key "+string(key),
				"the expiry index has a deadline for its revision %d, which is not its newest one or has another deadline",
				revision,
			)
		}
	}
	return it.Error()
}
