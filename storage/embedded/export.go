package embedded

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/storage"
)

// Record is a key's newest version with what an Entry does not say.
type Record struct {
	storage.Entry
	// Deadline is when the key expires, in Unix milliseconds by the wall clock as it is
	// now, or was when the store was last open; 0 is never.
	Deadline int64
}

// Export is the state of a store at one revision. It holds on to the files of
// that state until it is closed; writes go on meanwhile.
type Export struct {
	revision int64
	clock    savedClock
	it       *pebble.Iterator
	done     func()
	ended    func() error // why the store gives no more records; nil while it does
}

// Export opens the state at the current revision. The store's Close waits for it
// to be closed, and makes its Records end with ErrClosed.
func (s *Store) Export(ctx context.Context) (*Export, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	it, at, err := s.openView(context.WithoutCancel(ctx), 0, versionSpan())
	if err != nil {
		s.leave()
		return nil, err
	}
	ended := func() error {
		if s.stopped.Err() != nil {
			return storage.ErrClosed
		}
		return nil
	}
	return &Export{revision: at, clock: s.clock.saved(), it: it, done: s.leave, ended: ended}, nil
}

func versionSpan() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{spaceVersion}, UpperBound: []byte{spaceVersion + 1}}
}

// Revision is the revision whose state this is.
func (e *Export) Revision() int64 { return e.revision }

// Records returns the records in ascending byte order of their keys. An error is
// the last of the sequence. It is used by one goroutine and once.
func (e *Export) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := e.each(ctx, yield); err != nil {
			yield(Record{}, err)
		}
	}
}

func (e *Export) each(ctx context.Context, yield func(Record, error) bool) error {
	for ok := e.it.First(); ok; {
		if err := errors.Join(ctx.Err(), e.ended()); err != nil {
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
		if !v.tombstone && !yield(Record{v.entry(string(key)), e.clock.onWall(v.deadline)}, nil) {
			return nil
		}
		ok = e.it.NextPrefix()
	}
	return e.it.Error()
}

// Close releases the state.
func (e *Export) Close() error {
	defer e.done()
	return e.it.Close()
}

// Reader is a store that nobody writes to, opened for looking at it. It changes
// nothing in the data directory but the lock.
type Reader struct {
	store     *Store // without pipeline, hub and background
	revision  int64
	compacted int64
	clock     savedClock
	damage    error // why those could not be read
}

// OpenReader opens the store in o.Dir, which must exist, without changing it. It
// fails with ErrLocked while a Store has the directory.
func OpenReader(o Options) (*Reader, error) {
	o = o.withDefaults()
	if _, err := o.FS.Stat(o.Dir); err != nil {
		return nil, fmt.Errorf("cannot open data directory %s: %w", o.Dir, err)
	}
	s := &Store{opts: o, fs: o.FS}
	s.stopped, s.stop = context.WithCancel(context.Background())
	err := s.openDB(func(p *pebble.Options) {
		p.ReadOnly, p.ErrorIfNotExists = true, true
		// What is damaged is an error of the read that finds it.
		p.EventListener = &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
	})
	if err != nil {
		return nil, err
	}
	r := &Reader{store: s}
	r.revision, r.compacted, _, r.damage = s.position()
	if errors.Is(r.damage, ErrNewerFormat) {
		return nil, errors.Join(r.damage, s.closeDB())
	}
	if saved, err := s.savedClock(); err != nil {
		r.damage = errors.Join(r.damage, err)
	} else if saved != nil {
		r.clock = *saved
	}
	return r, nil
}

// Revision is the current revision.
func (r *Reader) Revision() int64 { return r.revision }

// Export opens the state at the current revision.
func (r *Reader) Export() (*Export, error) {
	if r.damage != nil {
		return nil, r.damage
	}
	it, err := r.store.db.NewIter(versionSpan())
	if err != nil {
		return nil, err
	}
	return &Export{revision: r.revision, clock: r.clock, it: it, done: func() {}, ended: func() error { return nil }}, nil
}

// Close releases the data directory.
func (r *Reader) Close() error {
	r.store.stop()
	return r.store.closeDB()
}

// importBatch is how many bytes one step of an import writes.
const importBatch = 1 << 20

// Import makes a store in o.Dir, which must not hold one, whose state at revision
// are the records, in ascending order of their keys. Everything below revision is
// compacted. The store is durable when Import returns; after an error the
// directory is of no use.
func Import(o Options, revision int64, records iter.Seq2[Record, error]) error {
	if revision < 1 {
		return fmt.Errorf("embedded: a store cannot be at revision %d", revision)
	}
	o = o.withDefaults()
	s := &Store{opts: o, fs: o.FS}
	// The database tries what it could not do in the background again and again, and
	// whoever writes waits: the first such error, as of a full disk, ends the import.
	s.stuck = make(chan error, 1)
	log := &importLogger{stuck: func(err error) {
		select {
		case s.stuck <- err:
		default: // the first counts
		}
	}}
	err := s.openDB(func(p *pebble.Options) {
		// What is not durable before the end is of no use, so that there is no log.
		p.ErrorIfExists, p.DisableWAL = true, true
		p.EventListener = &pebble.EventListener{BackgroundError: log.stuck}
		log.Logger, p.Logger = p.Logger, log
	})
	if err != nil {
		return err
	}
	log.open.Store(true)
	loaded := make(chan error, 1)
	go func() {
		_, err := guardPanic(func() (struct{}, error) { return struct{}{}, s.load(revision, records) })
		loaded <- err
	}()
	select {
	case err = <-loaded:
		return errors.Join(err, s.closeDB())
	case err = <-s.stuck:
		log.stuck(err) // closing may not end either
		return fmt.Errorf("cannot write to data directory %s: %w", o.Dir, s.closeDB())
	}
}

// importLogger has an import end where a store in use would end the process.
type importLogger struct {
	pebble.Logger
	open  atomic.Bool
	stuck func(error)
}

// Fatalf does not return to the database, which could not go on. Before it is open
// whoever opens it is told by a panic.
func (l *importLogger) Fatalf(format string, args ...any) {
	if !l.open.Load() {
		l.Logger.Fatalf(format, args...)
	}
	l.stuck(fmt.Errorf(strings.NewReplacer("%v", "%w", "%s", "%w").Replace(format), args...))
	select {}
}

func (s *Store) load(revision int64, records iter.Seq2[Record, error]) error {
	b := s.db.NewBatch()
	must(b.Set([]byte(metaFormat), encodeNumber(formatVersion), nil))
	must(b.Set([]byte(metaCompacted), encodeNumber(revision), nil))
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
		must(d.Finish())
		if r.Deadline != 0 {
			must(b.Set(appendExpiryKey(nil, r.Deadline, r.Key), encodeNumber(r.ModRevision), nil))
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

// validate says whether r can follow the key last in a store at revision.
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
