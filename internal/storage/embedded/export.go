package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

// Record is the newest version of a key, with its deadline.
type Record struct {
	storage.Entry
	// Deadline is the time at which the key expires, in Unix milliseconds of the wall clock. For an open store
	// this is the present wall clock, otherwise the wall clock when the store was last open. 0 means never.
	Deadline int64
	// Was is the revision of the record in the original store, if Import gives it a new revision and there is a
	// Past; otherwise it is 0.
	Was int64
}

// PastRecord is a record of old versions or of the log (storage.History), in its encoding in the database
// (layout.go).
type PastRecord struct{ Key, Value []byte }

// PastFormat is the version of the encoding of a PastRecord.
const PastFormat = formatVersion

// Past contains the old versions that Import writes in addition to the records.
type Past struct {
	// Records are the records of Export.Past. Import reads them after the other records.
	Records iter.Seq2[PastRecord, error]
	// At and By are recorded as the time and the author of the import if it gives the records new revisions.
	At time.Time
	By []byte
}

// Export is the state of a store at one revision. It keeps the files of that state on the disk until it is closed.
// Writes to the store continue meanwhile.
type Export struct {
	revision int64
	clock    savedClock
	it       *pebble.Iterator
	release  func()
	storeErr func() error // returns ErrClosed when the store is being closed
}

// Export opens the state at the current revision. Store.Close makes its Records end with ErrClosed, and waits
// until the Export is closed.
func (s *Store) Export(ctx context.Context) (*Export, error) {
	if err := s.lifetime.enter(ctx); err != nil {
		return nil, err
	}
	it, at, err := s.reads.openView(context.WithoutCancel(ctx), 0, versionSpan(), s.compactor.compacted.Load)
	if err != nil {
		s.lifetime.leave()
		return nil, err
	}
	ended := func() error {
		if s.lifetime.stopped.Err() != nil {
			return storage.ErrClosed
		}
		return nil
	}
	return &Export{revision: at, clock: s.clock.snapshot(), it: it, release: s.lifetime.leave, storeErr: ended}, nil
}

// versionSpan returns options for an iterator over all versions.
func versionSpan() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{prefixVersion}, UpperBound: []byte{prefixVersion + 1}}
}

// Revision returns the revision of the state.
func (e *Export) Revision() int64 { return e.revision }

// Records returns the records in ascending byte order of their keys. If an error occurs, it is the last element of
// the sequence. Records may be called only once, and only one goroutine may use the sequence.
func (e *Export) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := e.each(ctx, yield); err != nil {
			yield(Record{}, asDamage(err))
		}
	}
}

// each calls yield for each record until it returns false.
func (e *Export) each(ctx context.Context, yield func(Record, error) bool) error {
	for ok := e.it.First(); ok; {
		if err := errors.Join(ctx.Err(), e.storeErr()); err != nil {
			return err
		}
		key, revision, err := splitVersionKey(e.it.Key())
		if err != nil {
			return err
		}
		if revision > e.revision {
			ok = e.it.SeekGE(appendVersionKey(nil, string(key), e.revision))
			continue
		}
		v, _, err := currentVersion(e.it)
		if err != nil {
			return err
		}
		if !v.tombstone && !yield(Record{Entry: v.entry(string(key)), Deadline: e.clock.toWallTime(v.deadline)}, nil) {
			return nil
		}
		ok = e.it.NextPrefix()
	}
	return e.it.Error()
}

// Past returns the records of the past that the store keeps, at the revision of the state. If an error occurs, it
// is the last element of the sequence. Past may be called only once, after Records has ended, and only one
// goroutine may use the sequence.
func (e *Export) Past(ctx context.Context) iter.Seq2[PastRecord, error] {
	return func(yield func(PastRecord, error) bool) {
		it, err := e.it.Clone(pebble.CloneOptions{IterOptions: &pebble.IterOptions{}})
		if err != nil {
			yield(PastRecord{}, err)
			return
		}
		defer it.Close()
		if err := e.eachPast(ctx, it, yield); err != nil {
			yield(PastRecord{}, asDamage(err))
		}
	}
}

// eachPast calls yield for each record of the past until it returns false.
func (e *Export) eachPast(ctx context.Context, it *pebble.Iterator, yield func(PastRecord, error) bool) error {
	k, err := exportedKept(it)
	if err != nil || !yield(PastRecord{[]byte(metaKept), k.encode()}, nil) {
		return err
	}
	last := "" // the last key whose newest version was read
	for ok := it.First(); ok; ok = it.Next() {
		if err := errors.Join(ctx.Err(), e.storeErr()); err != nil {
			return err
		}
		past := false
		switch it.Key()[0] {
		case prefixLog:
			revision, err := parseLogKey(it.Key())
			if err != nil {
				return err
			}
			past = revision <= e.revision
		case prefixVersion:
			key, revision, err := splitVersionKey(it.Key())
			if err != nil {
				return err
			}
			if revision > e.revision {
				continue
			}
			value, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			past = string(key) == last || isTombstone(value)
			last = string(key)
		}
		if !past {
			continue
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if !yield(PastRecord{bytes.Clone(it.Key()), bytes.Clone(value)}, nil) {
			return nil
		}
	}
	return it.Error()
}

// exportedKept returns the record metaKept of the state. If the store has no such record because it was never
// compacted by a program that keeps history, the result says that everything after its compaction revision is
// kept.
func exportedKept(it *pebble.Iterator) (k kept, err error) {
	read := func(name string) (value []byte, ok bool, err error) {
		if !it.SeekGE([]byte(name)) || string(it.Key()) != name {
			return nil, false, it.Error()
		}
		value, err = it.ValueAndErr()
		return value, true, err
	}
	value, ok, err := read(metaKept)
	if err != nil {
		return k, err
	}
	if ok {
		return decodeKept(value)
	}
	compacted := int64(0)
	if value, ok, err = read(metaCompacted); err == nil && ok {
		compacted, err = decodeNumber(value)
	}
	return kept{Rules: []keptRule{{KeepMS: 1, Floor: mark{Revision: compacted}}}}, err
}

// Close releases the files of the state.
func (e *Export) Close() error {
	defer e.release()
	return e.it.Close()
}

// Reader is a store that is opened for reading only. It changes nothing in the data directory but the lock.
type Reader struct {
	store     *Store // without pipeline, hub and background goroutines
	revision  int64
	compacted int64
	clock     savedClock
	readErr   error // the error that occurred while the fields above were read
}

// OpenReader opens the store in o.Dir, which must exist, without changing it. It fails with ErrLocked while a
// Store uses the directory. It also opens a damaged store, so that Verify can report the damage.
func OpenReader(o Options) (*Reader, error) {
	o = o.withDefaults()
	if _, err := o.FS.Stat(o.Dir); err != nil {
		return nil, fmt.Errorf("cannot open data directory %s: %w", o.Dir, err)
	}
	s := &Store{opts: o, lifetime: newLifetime()}
	err := s.openDB(func(p *pebble.Options) {
		p.ReadOnly, p.ErrorIfNotExists = true, true
		// Damage is reported as an error of the read that finds it.
		p.EventListener = &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
	})
	if err != nil {
		return nil, err
	}
	r := &Reader{store: s}
	r.revision, r.compacted, _, r.readErr = s.db.position()
	if errors.Is(r.readErr, ErrNewerFormat) {
		return nil, errors.Join(r.readErr, s.closeDB())
	}
	if saved, err := s.db.savedClock(); err != nil {
		r.readErr = errors.Join(r.readErr, err)
	} else if saved != nil {
		r.clock = *saved
	}
	return r, nil
}

// Revision returns the current revision.
func (r *Reader) Revision() int64 { return r.revision }

// Export opens the state at the current revision. It fails if the store is damaged.
func (r *Reader) Export() (*Export, error) {
	if r.readErr != nil {
		return nil, r.readErr
	}
	it, err := r.store.db.NewIter(versionSpan())
	if err != nil {
		return nil, err
	}
	return &Export{
		revision: r.revision, clock: r.clock, it: it, release: func() {}, storeErr: func() error { return nil },
	}, nil
}

// Close closes the database and unlocks the data directory.
func (r *Reader) Close() error {
	r.store.lifetime.stop()
	return r.store.closeDB()
}

// importBatch is the number of bytes that one batch of an import writes.
const importBatch = 1 << 20

// Import creates a store in o.Dir, which must not contain one. records are its state at revision, in ascending
// order of their keys. All lower revisions are compacted. If past is not nil, reads of the past find its records.
// They also find the earlier version of each record with a revision Was. The store is durable when Import returns
// nil. After an error the directory cannot be used.
func Import(o Options, revision int64, records iter.Seq2[Record, error], past *Past) error {
	if revision < 1 {
		return fmt.Errorf("embedded: a store cannot be at revision %d", revision)
	}
	o = o.withDefaults()
	s := &Store{opts: o}
	// The database repeats a failed background operation without end, and writes wait meanwhile. Therefore the
	// first such error, for example because the disk is full, ends the import.
	s.importFailed = make(chan error, 1)
	log := &importLogger{fail: func(err error) {
		select {
		case s.importFailed <- err:
		default: // only the first error is reported
		}
	}}
	err := s.openDB(func(p *pebble.Options) {
		// The store is used only after a complete import, so that no log is needed.
		p.ErrorIfExists, p.DisableWAL = true, true
		p.EventListener = &pebble.EventListener{BackgroundError: log.fail}
		log.Logger, p.Logger = p.Logger, log
	})
	if err != nil {
		return err
	}
	log.opened.Store(true)
	loaded := make(chan error, 1)
	go func() {
		_, err := guardPanic(func() (struct{}, error) { return struct{}{}, loadRecords(s.db.DB, revision, records, past) })
		loaded <- err
	}()
	select {
	case err = <-loaded:
		return errors.Join(err, s.closeDB())
	case err = <-s.importFailed:
		log.fail(err) // makes closing return, too
		return fmt.Errorf("cannot write to data directory %s: %w", o.Dir, s.closeDB())
	}
}

// importLogger makes an import fail with an error in cases in which the database would end the process.
type importLogger struct {
	pebble.Logger
	opened atomic.Bool
	fail   func(error)
}

// Fatalf does not return, because the database cannot continue. Before the database is open it panics, so that openDB
// fails. After that it passes the error to fail and blocks its goroutine.
func (l *importLogger) Fatalf(format string, args ...any) {
	if !l.opened.Load() {
		l.Logger.Fatalf(format, args...)
	}
	l.fail(fmt.Errorf(strings.NewReplacer("%v", "%w", "%s", "%w").Replace(format), args...))
	select {}
}

// loadRecords writes the records of an import.
func loadRecords(db *pebble.DB, revision int64, records iter.Seq2[Record, error], past *Past) (err error) {
	l := &loader{db: db, batch: db.NewBatch(), revision: revision, past: past}
	defer func() { err = errors.Join(err, l.batch.Close()) }()
	l.set([]byte(metaFormat), encodeNumber(formatVersion))
	l.set([]byte(metaCompacted), encodeNumber(revision))
	last := ""
	for r, err := range records {
		if err == nil {
			err = r.validate(last, revision)
		}
		if err == nil {
			last = r.Key
			err = l.record(&r)
		}
		if err != nil {
			return err
		}
	}
	if past != nil {
		for r, err := range past.Records {
			if err == nil {
				err = l.pastRecord(r)
			}
			if err != nil {
				return err
			}
		}
	}
	if err := l.batch.Commit(pebble.NoSync); err != nil {
		return err
	}
	return db.Flush()
}

// loader writes the records of an import.
type loader struct {
	db       *pebble.DB
	batch    *pebble.Batch
	revision int64
	past     *Past
}

func (l *loader) set(key, value []byte) { mustSucceed(l.batch.Set(key, value, nil)) }

func (l *loader) version(key string, revision int64, v version) {
	d := l.batch.SetDeferred(versionKeySize(key), v.size())
	putVersionKey(d.Key, key, revision)
	v.encode(d.Value)
	mustSucceed(d.Finish())
}

// record writes a record. If Import has given it a new revision, that counts as one more change: the earlier
// version is kept, and the log gets the change.
func (l *loader) record(r *Record) error {
	l.version(r.Key, r.ModRevision, version{create: r.CreateRevision, deadline: r.Deadline, value: r.Value})
	if r.Deadline != 0 {
		l.set(appendExpiryKey(nil, r.Deadline, r.Key), encodeNumber(r.ModRevision))
	}
	if r.Was != 0 {
		was := version{create: r.CreateRevision, value: r.Value}
		l.version(r.Key, r.Was, was)
		by := appendWritten(nil, written{l.past.At.UnixMilli(), l.past.By})
		l.set(logKey(r.ModRevision), appendLogOp(by, logOp{key: r.Key, prev: r.Was, prevSize: int64(was.size())}))
	}
	return l.commitFull()
}

// pastRecord writes a record of the past.
func (l *loader) pastRecord(r PastRecord) error {
	err := errors.New("the record is of no kind that a past has")
	revision := int64(0)
	switch {
	case string(r.Key) == metaKept:
		var k kept
		if k, err = decodeKept(r.Value); err == nil {
			k.Window = mark{l.revision, l.past.At.UnixMilli()}
			r.Value = k.encode()
		}
	case len(r.Key) > 0 && r.Key[0] == prefixLog:
		if revision, err = parseLogKey(r.Key); err == nil {
			err = decodeLog(r.Value, func([]byte, logOp) error { return nil })
		}
	case len(r.Key) > 0 && r.Key[0] == prefixVersion:
		if _, revision, err = splitVersionKey(r.Key); err == nil {
			_, err = decodeVersion(r.Value, revision)
		}
	}
	if err == nil && revision > l.revision {
		err = fmt.Errorf("it is of revision %d, in a store at %d", revision, l.revision)
	}
	if err != nil {
		return fmt.Errorf("embedded: record %q of the past: %w", r.Key, err)
	}
	l.set(r.Key, r.Value)
	return l.commitFull()
}

// commitFull writes the batch if it is large.
func (l *loader) commitFull() error {
	if l.batch.Len() < importBatch {
		return nil
	}
	err := l.batch.Commit(pebble.NoSync)
	l.batch = l.db.NewBatch()
	return err
}

// validate returns an error if r cannot follow the key last in a store at revision.
func (r *Record) validate(last string, revision int64) error {
	if err := validateKey(r.Key); err != nil {
		return err
	}
	switch {
	case r.Key <= last:
		return fmt.Errorf("embedded: key %q does not come after %q", r.Key, last)
	case r.ModRevision < 1 || r.ModRevision > revision || r.CreateRevision < 1 || r.CreateRevision > r.ModRevision:
		return fmt.Errorf(
			"embedded: key %q was made at revision %d and changed at %d, in a store at %d", r.Key, r.CreateRevision,
			r.ModRevision, revision,
		)
	case r.Deadline < 0:
		return fmt.Errorf("embedded: key %q has a negative deadline", r.Key)
	}
	return nil
}
