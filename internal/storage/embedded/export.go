package embedded

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

// Record is the newest version of a key, with its deadline.
type Record struct {
	storage.Entry
	// Deadline is the time at which the key expires, in Unix milliseconds of the wall clock: the current one for an open
	// store, otherwise as it was when the store was open last. 0 means never.
	Deadline int64
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

// Export opens the state at the current revision. Close of the store waits until the Export is closed, and makes its
// Records end with ErrClosed.
func (s *Store) Export(ctx context.Context) (*Export, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	it, at, err := s.openView(context.WithoutCancel(ctx), 0, versionSpan(), s.history.compacted.Load)
	if err != nil {
		s.leave()
		return nil, err
	}
	ended := func() error {
		if s.lifetime.stopped.Err() != nil {
			return storage.ErrClosed
		}
		return nil
	}
	return &Export{revision: at, clock: s.clock.snapshot(), it: it, release: s.leave, storeErr: ended}, nil
}

// versionSpan returns options for an iterator over all versions.
func versionSpan() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{prefixVersion}, UpperBound: []byte{prefixVersion + 1}}
}

// Revision returns the revision of the state.
func (e *Export) Revision() int64 { return e.revision }

// Records returns the records in ascending byte order of their keys. If an error occurs, it is the last element of the
// sequence. Records must be called once, and the sequence used by one goroutine.
func (e *Export) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := e.each(ctx, yield); err != nil {
			yield(Record{}, err)
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
		if !v.tombstone && !yield(Record{v.entry(string(key)), e.clock.toWallTime(v.deadline)}, nil) {
			return nil
		}
		ok = e.it.NextPrefix()
	}
	return e.it.Error()
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

// OpenReader opens the store in o.Dir, which must exist, without changing it. It fails with ErrLocked while a Store
// uses the directory. A damaged store can be opened, so that Verify can report the damage.
func OpenReader(o Options) (*Reader, error) {
	o = o.withDefaults()
	if _, err := o.FS.Stat(o.Dir); err != nil {
		return nil, fmt.Errorf("cannot open data directory %s: %w", o.Dir, err)
	}
	s := &Store{opts: o}
	s.lifetime.stopped, s.lifetime.stop = context.WithCancel(context.Background())
	err := s.openDB(func(p *pebble.Options) {
		p.ReadOnly, p.ErrorIfNotExists = true, true
		// Damage is reported as an error of the read that finds it.
		p.EventListener = &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
	})
	if err != nil {
		return nil, err
	}
	r := &Reader{store: s}
	r.revision, r.compacted, _, r.readErr = s.position()
	if errors.Is(r.readErr, ErrNewerFormat) {
		return nil, errors.Join(r.readErr, s.closeDB())
	}
	if saved, err := s.readSavedClock(); err != nil {
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

// Import creates a store in o.Dir, which must not contain one. Its state at revision is records, which must be in
// ascending order of their keys; all lower revisions are compacted. The store is durable when Import returns nil. After
// an error the directory cannot be used.
func Import(o Options, revision int64, records iter.Seq2[Record, error]) error {
	if revision < 1 {
		return fmt.Errorf("embedded: a store cannot be at revision %d", revision)
	}
	o = o.withDefaults()
	s := &Store{opts: o}
	// The database repeats a failed background operation without end, while writes wait. Therefore the first such error,
	// for example of a full disk, ends the import.
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
		_, err := guardPanic(func() (struct{}, error) { return struct{}{}, s.loadRecords(revision, records) })
		loaded <- err
	}()
	select {
	case err = <-loaded:
		return errors.Join(err, s.closeDB())
	case err = <-s.importFailed:
		log.fail(err) // closing may not end either
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
func (s *Store) loadRecords(revision int64, records iter.Seq2[Record, error]) error {
	b := s.db.NewBatch()
	mustSucceed(b.Set([]byte(metaFormat), encodeNumber(formatVersion), nil))
	mustSucceed(b.Set([]byte(metaCompacted), encodeNumber(revision), nil))
	last := ""
	for r, err := range records {
		if err != nil {
			return errors.Join(err, b.Close())
		}
		if err := r.validate(last, revision); err != nil {
			return errors.Join(err, b.Close())
		}
		last = r.Key
		v := version{create: r.CreateRevision, deadline: r.Deadline, value: r.Value}
		d := b.SetDeferred(versionKeySize(r.Key), v.size())
		putVersionKey(d.Key, r.Key, r.ModRevision)
		v.encode(d.Value)
		mustSucceed(d.Finish())
		if r.Deadline != 0 {
			mustSucceed(b.Set(appendExpiryKey(nil, r.Deadline, r.Key), encodeNumber(r.ModRevision), nil))
		}
		if b.Len() < importBatch {
			continue
		}
		if err := b.Commit(pebble.NoSync); err != nil {
			return err
		}
		b = s.db.NewBatch()
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return err
	}
	return s.db.Flush()
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
