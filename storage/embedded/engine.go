package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/storage"
)

// Store is a storage.Store in a Pebble database. Its contract is the
// interface's; beyond that, a Get or Commit with an empty key or one that
// contains a zero byte is an error.
type Store struct {
	opts Options
	fs   vfs.FS
	lock *pebble.Lock
	db   *pebble.DB

	planner  *planner
	pipeline *pipeline
	hub      *hub

	// compacted is the compaction revision; 0 if nothing was ever compacted.
	// Written under compacting, before the first deletion that it covers.
	compacted  atomic.Int64
	compacting sync.Mutex // held by whoever compacts; guards scrubbed
	scrubbed   int64      // log records up to here are gone

	// The keeper's, after Open: which revisions leave the window, and which would leave
	// lowSpaceWindow; when the clock was saved, and at which revision.
	marks, recent *marks
	clockSaved    mark

	clock     *storeClock
	reclaimer reclaimer
	gate      *gate
	expiry    sweepMark
	space     spaceWatch
	sizeBytes atomic.Int64
	marked    int64 // by writeMark; belongs to keep, and to Close after it
	// damagedFiles is how many were met.
	damagedFiles atomic.Int64

	// life is held for reading by every method that uses db, and for writing by
	// Close, which sets closed.
	life   sync.RWMutex
	closed bool
	// stuck receives when a database that is being filled cannot go on; nil otherwise.
	stuck chan error

	stopped   context.Context // done when Close begins
	stop      context.CancelFunc
	keeper    sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
}

var _ storage.Store = (*Store)(nil)

// Open opens the store in o.Dir, and creates it if there is none. It fails with
// ErrLocked while another Store has the directory and with ErrNewerFormat if it
// cannot know what the data means.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	if o.Dir == "" {
		return nil, errors.New("embedded: no data directory given")
	}
	s := &Store{opts: o, fs: o.FS}
	s.stopped, s.stop = context.WithCancel(context.Background())
	d := &damage{store: s, said: map[string]bool{}}
	err := s.openDB(func(p *pebble.Options) { d.log, p.EventListener = p.Logger, d.listener() })
	if err != nil {
		return nil, err
	}
	revision, err := s.recover()
	if err == nil {
		err = s.openClock()
	}
	if err == nil {
		err = s.openMarks(revision)
	}
	if err != nil {
		s.closeDB()
		return nil, err
	}
	s.start(revision)
	d.pipeline.Store(s.pipeline)
	return s, nil
}

// openDB locks the directory and opens the database, with its options adjusted.
func (s *Store) openDB(adjust func(*pebble.Options)) error {
	o := &s.opts
	if err := makeDir(o.FS, o.Dir); err != nil {
		return fmt.Errorf("cannot create data directory %s: %w", o.Dir, err)
	}
	lock, err := pebble.LockDirectory(o.Dir, o.FS)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			return fmt.Errorf("cannot write to data directory %s: %w", o.Dir, err)
		}
		return fmt.Errorf("data directory %s is used by another process: %w", o.Dir, ErrLocked)
	}
	options := o.pebbleOptions(&pebbleLogger{store: s}, lock)
	adjust(options)
	if !options.ReadOnly {
		if !options.DisableWAL { // an import ends when there is no space
			s.gate = newGate(s)
			options.FS, options.Experimental.CompactionScheduler = s.gate, s.gate
		}
		if err := errors.Join(whole(o), s.space.makeRoom(o)); err != nil {
			return errors.Join(err, lock.Close())
		}
	}
	db, err := guardPanic(func() (*pebble.DB, error) { return pebble.Open(o.Dir, options) })
	if err != nil {
		lock.Close()
		return openError(o.Dir, err)
	}
	s.db, s.lock = db, lock
	return nil
}

// makeDir makes a directory and those above it that are missing, and makes their
// entries durable: a database that is synced in a directory that is not would be
// lost with it.
func makeDir(fs vfs.FS, dir string) error {
	var parents []string // of what is missing, the innermost first
	for at := dir; ; at = fs.PathDir(at) {
		if _, err := fs.Stat(at); err == nil || fs.PathDir(at) == at {
			break
		}
		parents = append(parents, fs.PathDir(at))
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, parent := range parents {
		d, err := fs.OpenDir(parent)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
	}
	return nil
}

// openError says in one line why the database could not be opened.
func openError(dir string, err error) error {
	text := err.Error()
	if strings.Contains(text, "format major version") {
		return fmt.Errorf("data directory %s: %w: %v", dir, ErrNewerFormat, err)
	}
	return fmt.Errorf("cannot open data directory %s: %w", dir, err)
}

// position reads the store's own numbers: the current revision, the compaction
// revision and the format, which is 0 in a new database.
func (s *Store) position() (revision, compacted, format int64, err error) {
	if format, err = s.number(metaFormat); err != nil {
		return 0, 0, 0, err
	}
	if format > formatVersion {
		return 0, 0, 0, fmt.Errorf(
			"data directory %s: %w: %d, this program knows %d", s.opts.Dir, ErrNewerFormat, format, formatVersion,
		)
	}
	if compacted, err = s.number(metaCompacted); err != nil {
		return 0, 0, 0, err
	}
	last, err := s.lastLogged()
	if err != nil {
		return 0, 0, 0, err
	}
	return max(last, compacted, 1), compacted, format, nil
}

// recover returns the current revision. A new database gets its format number.
func (s *Store) recover() (int64, error) {
	revision, compacted, format, err := s.position()
	if err != nil {
		return 0, err
	}
	if err := s.checkMark(revision); err != nil {
		return 0, err
	}
	if format == formatVersion && revision >= s.opts.MinRevision {
		s.compacted.Store(compacted)
		return revision, nil
	}
	b := s.db.NewBatch()
	must(b.Set([]byte(metaFormat), encodeNumber(formatVersion), nil))
	if revision < s.opts.MinRevision {
		revision, compacted = s.opts.MinRevision, s.opts.MinRevision
		must(b.Set([]byte(metaCompacted), encodeNumber(compacted), nil))
	}
	if err := b.Commit(pebble.Sync); err != nil {
		return 0, fmt.Errorf("cannot write to data directory %s: %w", s.opts.Dir, err)
	}
	s.compacted.Store(compacted)
	return revision, nil
}

// number reads one of the store's own numbers; 0 if it is not there.
func (s *Store) number(name string) (int64, error) {
	b, closer, err := s.db.Get([]byte(name))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("data directory %s: reading %s: %w", s.opts.Dir, name, err)
	}
	defer closer.Close()
	return decodeNumber(b)
}

// lastLogged returns the revision of the last log record; 0 if there is none.
func (s *Store) lastLogged() (int64, error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceLog}, UpperBound: []byte{spaceLog + 1}})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	if !it.Last() {
		return 0, it.Error()
	}
	return parseLogKey(it.Key())
}

func (s *Store) start(revision int64) {
	s.hub = newHub(revision, s.opts.RingBytes)
	s.planner = &planner{
		last:      revision,
		durable:   s.hub.durable.Load,
		now:       s.clock.now,
		scheduled: s.expiry.scheduled,
		view:      s.newestVersions,
		batch:     func() *pebble.Batch { return s.db.NewBatch() },
		overlay:   make(map[string]version),
	}
	s.pipeline = newPipeline(pipelineEnv{
		plan: func(requests []*request) *group {
			return s.planner.plan(requests, func(b *pebble.Batch) batch { return &pebbleBatch{s: s, b: b} })
		},
		publish: func(g *group) { s.hub.publish(g.records) },
		failed:  s.failed,
	})
	s.measure()
	s.reclaimer.wake = make(chan struct{}, 1)
	s.keeper.Go(s.keep)
	s.keeper.Go(s.reclaim)
}

// keep is the store's background goroutine: expiry, history, free space, the clock and
// watch progress. What takes long is done by another one, reclaim.
func (s *Store) keep() {
	sweep := time.NewTicker(s.opts.SweepInterval)
	defer sweep.Stop()
	space := time.NewTicker(time.Second)
	defer space.Stop()
	progress := time.NewTicker(s.opts.ProgressInterval)
	defer progress.Stop()
	var compact <-chan time.Time
	if s.opts.HistoryWindow > 0 {
		t := time.NewTicker(s.opts.CompactInterval)
		defer t.Stop()
		compact = t.C
	}
	for {
		select {
		case <-s.stopped.Done():
			return
		case <-sweep.C:
			s.sweep()
		case <-space.C:
			s.measure()
			s.writeMark()
			s.watchClock()
			s.relieve()
		case <-progress.C:
			s.hub.progress()
		case <-compact:
			s.compactHistory()
		}
	}
}

// measure looks up the free space and the store's size.
func (s *Store) measure() {
	s.space.check(s)
	s.sizeBytes.Store(int64(s.db.Metrics().DiskSpaceUsage()))
}

// pebbleBatch makes a Pebble batch one of the pipeline's.
type pebbleBatch struct {
	s *Store
	b *pebble.Batch
}

func (b *pebbleBatch) apply() error {
	b.s.space.wrote(b.s, b.b.Len())
	_, err := guardPanic(func() (struct{}, error) {
		return struct{}{}, b.s.db.ApplyNoSyncWait(b.b, pebble.Sync)
	})
	return err
}

func (b *pebbleBatch) wait() error {
	if err := b.b.SyncWait(); err != nil {
		return err
	}
	return b.b.Close()
}

// guardPanic turns a panic of the database, which it raises when its log cannot be
// written, into an error.
func guardPanic[T any](f func() (T, error)) (result T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return f()
}

// failed makes a failure known; the pipeline already refuses writes.
func (s *Store) failed(err error) {
	s.opts.Logger.Error(
		"the store has failed and accepts no more writes; restart the process", "dir", s.opts.Dir, "error", err,
	)
	if s.opts.OnFailure != nil {
		s.opts.OnFailure(err)
	}
}

// enter admits a method that uses the database; leave must follow a nil error.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.life.RLock()
	if s.closed {
		s.life.RUnlock()
		return storage.ErrClosed
	}
	return nil
}

func (s *Store) leave() { s.life.RUnlock() }

// Commit implements storage.Store.
func (s *Store) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	if err := s.validate(txn); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	r := newRequest(txn)
	if r.size > s.opts.MaxTxnBytes {
		return 0, fmt.Errorf("%w: %d bytes, at most %d are allowed", storage.ErrTooLarge, r.size, s.opts.MaxTxnBytes)
	}
	if !s.space.allows(txn.Ops) {
		if err := s.enter(ctx); err != nil {
			return 0, err // closed comes first
		}
		s.leave()
		return 0, storage.ErrNoSpace
	}
	if err := s.pipeline.submit(r); err != nil {
		return 0, err
	}
	select {
	case <-r.done:
		return r.revision, r.err
	case <-ctx.Done():
		r.abandon()
		return 0, ctx.Err()
	}
}

func (s *Store) validate(txn storage.Txn) error {
	for i := range txn.Conditions {
		if err := validateKey(txn.Conditions[i].Key); err != nil {
			return err
		}
	}
	var seen map[string]struct{}
	if len(txn.Ops) > 8 {
		seen = make(map[string]struct{}, len(txn.Ops))
	}
	for i := range txn.Ops {
		key := txn.Ops[i].Key
		if err := validateKey(key); err != nil {
			return err
		}
		if txn.Ops[i].TTL < 0 {
			return fmt.Errorf("embedded: negative TTL for key %q", key)
		}
		if repeated(txn.Ops[:i], key, seen) {
			return fmt.Errorf("embedded: key %q occurs twice in one transaction", key)
		}
	}
	return nil
}

// repeated tells whether key is among ops, by way of seen if that is not nil.
func repeated(ops []storage.Op, key string, seen map[string]struct{}) bool {
	if seen != nil {
		_, ok := seen[key]
		seen[key] = struct{}{}
		return ok
	}
	for i := range ops {
		if ops[i].Key == key {
			return true
		}
	}
	return false
}

func txnSize(txn storage.Txn) int {
	n := 0
	for i := range txn.Ops {
		n += len(txn.Ops[i].Key) + len(txn.Ops[i].Value)
	}
	for i := range txn.Conditions {
		n += len(txn.Conditions[i].Key)
	}
	return n
}

// Close implements storage.Store. Order: background work, commits, watchers,
// readers, database.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.stop()
		s.keeper.Wait()
		s.pipeline.close()
		s.writeMark()
		if s.opts.HistoryWindow > 0 {
			s.saveMarks()
		}
		s.hub.close()
		s.life.Lock()
		defer s.life.Unlock()
		s.closed = true
		s.closeErr = s.closeDB()
	})
	return s.closeErr
}

// closeFailedTimeout bounds how long a failed database may take to close: it
// may have stopped with a lock held.
const closeFailedTimeout = 2 * time.Second

func (s *Store) closeDB() error {
	done := make(chan error, 1)
	go func() {
		_, err := guardPanic(func() (struct{}, error) { return struct{}{}, s.db.Close() })
		done <- err
	}()
	var expired <-chan time.Time
	if s.pipeline != nil && s.pipeline.failure.Load() != nil {
		expired = time.After(closeFailedTimeout)
	}
	stuck, cause := s.stuck, error(nil)
	for {
		select {
		case err := <-done:
			return errors.Join(cause, err, s.lock.Close())
		case cause = <-stuck:
			stuck, expired = nil, time.After(closeFailedTimeout) // the first counts
		case <-expired:
			// The directory stays locked: the database may still write to it.
			return errors.Join(cause, fmt.Errorf("embedded: the failed database in %s did not close", s.opts.Dir))
		}
	}
}
