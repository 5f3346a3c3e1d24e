package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

// Store is a storage.Store in a Pebble database. Beyond the contract of the interface, Get and Commit fail if a key is
// empty or contains a zero byte.
type Store struct {
	opts Options
	lock *pebble.Lock // of the data directory
	db   *database

	planner  *planner
	pipeline *pipeline
	hub      *hub
	reads    reads

	clock        *storeClock
	compactor    compactor
	reclaimer    reclaimer
	sweeper      sweeper
	space        diskSpace
	merges       *mergeScheduler // nil in a Reader and in an import
	files        fileState
	revisionFile revisionFile
	lifetime     *lifetime
	confirming   atomic.Int64 // the revision for which Options.Confirm was called last

	// importFailed receives the error that ends an import. It is nil in all other stores.
	importFailed chan error
}

// fileState is the state of the store's files.
type fileState struct {
	sizeBytes atomic.Int64 // size of the database at the last updateDiskUsage
	damaged   atomic.Int64 // number of files in which damage was found since Open
}

var _ storage.Store = (*Store)(nil)

// Open opens the store in o.Dir, and creates it if it does not exist. It fails with ErrLocked while another Store uses
// the directory, with ErrNewerFormat if a later version of the program wrote it, and with ErrDataLost if acknowledged
// changes are missing. The caller must call Close.
func Open(o Options) (*Store, error) {
	return open(o)
}

// open opens a store for Open or OpenFollower.
func open(o Options) (*Store, error) {
	o = o.withDefaults()
	if o.Dir == "" {
		return nil, errors.New("embedded: no data directory given")
	}
	s := &Store{opts: o, lifetime: newLifetime()}
	d := &corruptionHandler{store: s, logged: map[string]bool{}}
	var logBytes int64
	err := s.openDB(func(p *pebble.Options) {
		d.logger, p.EventListener, p.ErrorIfNotExists = p.Logger, d.listener(), o.following
		logBytes = logFileBytes(&s.opts)
	})
	if err != nil {
		return nil, err
	}
	revision, err := s.recoverPosition()
	if err == nil && !o.following {
		err = s.db.checkLogRecords(s.compactor.compacted.Load(), logBytes)
	}
	if err == nil {
		s.clock, err = openClock(s.db)
		s.compactor.clock = s.clock
	}
	if err == nil {
		err = s.compactor.loadSamples(revision)
	}
	if err == nil {
		err = s.compactor.loadKept()
	}
	if err != nil {
		s.closeDB()
		if pebble.IsCorruptionError(err) {
			err = openError(o.Dir, err)
		}
		return nil, err
	}
	s.start(revision)
	return s, nil
}

// openDB locks the directory and opens the database. adjust may change the options of the database before.
func (s *Store) openDB(adjust func(*pebble.Options)) error {
	o := &s.opts
	if err := makeDir(o.FS, o.Dir); err != nil {
		return fmt.Errorf("cannot create data directory %s: %w", o.Dir, err)
	}
	lock, err := lockDir(o)
	if err != nil {
		return err
	}
	options := o.pebbleOptions(&pebbleLogger{store: s}, lock)
	adjust(options)
	if !options.ReadOnly {
		if s.importFailed == nil { // without a scheduler, an import fails when there is no space
			s.merges = newMergeScheduler(s)
			options.FS, options.Experimental.CompactionScheduler = s.merges, s.merges
		} else {
			// The tables of an import do not overlap, so they may stay in level 0 for a long time. They are
			// therefore compressed like those of level 1.
			options.Levels[0].Compression = options.Levels[1].Compression
		}
		var err error
		if o.Image != nil {
			err = o.Image.copyTo(o)
		}
		if err = errors.Join(err, checkManifest(o), s.space.makeRoom(o)); err != nil {
			return errors.Join(err, lock.Close())
		}
	}
	db, err := guardPanic(func() (*pebble.DB, error) { return pebble.Open(o.Dir, options) })
	if err != nil {
		lock.Close()
		return openError(o.Dir, err)
	}
	s.revisionFile.opts = o
	s.db, s.lock = &database{DB: db, opts: o, space: &s.space}, lock
	s.compactor.db, s.compactor.reclaimer = s.db, &s.reclaimer
	return nil
}

// openError returns the error that Open returns when the database could not be opened because of err. It has one
// line.
func openError(dir string, err error) error {
	text := err.Error()
	if strings.Contains(text, "format major version") {
		return fmt.Errorf("data directory %s: %w: %v", dir, ErrNewerFormat, err)
	}
	// Pebble does not mark an error as corruption if a file is missing or has a wrong size.
	if pebble.IsCorruptionError(err) || strings.Contains(text, "manifest file") || missingTable.MatchString(text) ||
		wrongSize.MatchString(text) {
		return fmt.Errorf("cannot open data directory %s: %w; `keelson repair` makes what can be read usable, "+
			"`keelson snapshot restore` makes another directory from a snapshot: %s", dir, ErrDamaged, damageIn(err))
	}
	return fmt.Errorf("cannot open data directory %s: %w", dir, err)
}

// recoverPosition returns the current revision, and sets the compaction revision. It writes the format number to a new
// database, and advances the revision to Options.MinRevision if that is higher.
func (s *Store) recoverPosition() (int64, error) {
	revision, compacted, format, err := s.db.position()
	if err != nil {
		return 0, err
	}
	if !s.opts.following {
		if err := s.revisionFile.check(revision); err != nil {
			return 0, err
		}
	}
	if format == formatVersion && revision >= s.opts.MinRevision {
		s.compactor.compacted.Store(compacted)
		return revision, nil
	}
	b := s.db.NewBatch()
	mustSucceed(b.Set([]byte(metaFormat), encodeNumber(formatVersion), nil))
	if revision < s.opts.MinRevision {
		revision, compacted = s.opts.MinRevision, s.opts.MinRevision
		mustSucceed(b.Set([]byte(metaCompacted), encodeNumber(compacted), nil))
	}
	if err := b.Commit(&pebble.WriteOptions{Sync: s.opts.logged()}); err != nil {
		return 0, fmt.Errorf("cannot write to data directory %s: %w", s.opts.Dir, err)
	}
	s.compactor.compacted.Store(compacted)
	return revision, nil
}

// start creates the planner, the pipeline and the hub at the current revision, and starts the background goroutines.
func (s *Store) start(revision int64) {
	s.hub = newHub(revision, s.opts.RingBytes)
	s.compactor.hub = s.hub
	s.reads = reads{s.db, s.hub, s.lifetime, &s.compactor.compacted}
	s.planner = &planner{
		lastRevision: revision,
		durable:      s.hub.durable.Load,
		now:          s.clock.now,
		wall:         s.opts.Clock,
		scheduled:    s.sweeper.start.scheduled,
		view:         s.db.newestVersions,
		batch:        func() *pebble.Batch { return s.db.NewBatch() },
		recent:       newRecentVersions(s.opts.RingBytes),
	}
	s.pipeline = newPipeline(pipelineEnv{
		plan: func(requests []*request) *group {
			return s.planner.plan(requests, func(b *pebble.Batch) batch { return &pebbleBatch{s: s, b: b} })
		},
		confirm: s.confirm(),
		publish: func(g *group) { s.hub.publish(g.records) },
		durable: func(g *group) {
			if s.opts.OnGroup != nil {
				s.opts.OnGroup(len(g.answers), time.Since(g.begun))
			}
		},
		failed: s.reportFailure,
	})
	s.db.pipeline = s.pipeline
	s.updateDiskUsage()
	s.sweeper.db, s.sweeper.clock, s.sweeper.pipeline = s.db, s.clock, s.pipeline
	s.reclaimer.db, s.reclaimer.merges, s.reclaimer.measure = s.db, s.merges, s.updateDiskUsage
	s.reclaimer.wake = make(chan struct{}, 1)
	s.lifetime.background.Go(s.runMaintenance)
	s.lifetime.background.Go(func() { s.reclaimer.run(s.lifetime.stopped, s.reclaimer.once) })
}

// confirm returns pipelineEnv.confirm.
func (s *Store) confirm() func(*group) error {
	if s.opts.Confirm == nil {
		return nil
	}
	return func(g *group) error {
		revision := g.records[len(g.records)-1].revision
		s.confirming.Store(revision)
		return s.opts.Confirm(s.lifetime.stopped, revision)
	}
}

// runMaintenance is a background goroutine: it removes expired keys, compacts history, checks free space, saves the
// clock and sends progress to watchers. Long work is done by another goroutine, runReclaimer.
func (s *Store) runMaintenance() {
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
		case <-s.lifetime.stopped.Done():
			return
		case <-sweep.C:
			if !s.opts.following { // the other store removes what expires
				s.sweeper.sweep(s.lifetime.stopped)
			}
		case <-space.C:
			s.updateDiskUsage()
			if !s.opts.following {
				s.revisionFile.write(s.hub.durable.Load())
			}
			s.clock.check(s.db, s.hub.durable.Load(), s.compactor.compacted.Load())
			s.compactor.relieveLowSpace(s.lifetime.stopped)
		case <-progress.C:
			s.hub.sendProgress()
		case <-compact:
			s.compactor.compactWindow(s.lifetime.stopped)
		}
	}
}

// updateDiskUsage reads the free disk space and the size of the store.
func (s *Store) updateDiskUsage() {
	s.space.update(s)
	s.files.sizeBytes.Store(int64(s.db.Metrics().DiskSpaceUsage()))
}

// pebbleBatch implements batch with a Pebble batch.
type pebbleBatch struct {
	s *Store
	b *pebble.Batch
}

func (b *pebbleBatch) apply() error {
	b.s.space.addWritten(b.s, b.b.Len())
	_, err := guardPanic(func() (struct{}, error) {
		if b.s.opts.logged() {
			return struct{}{}, b.s.db.ApplyNoSyncWait(b.b, pebble.Sync)
		}
		return struct{}{}, b.s.db.Apply(b.b, pebble.NoSync)
	})
	return err
}

func (b *pebbleBatch) wait() error {
	if b.s.opts.logged() {
		if err := b.b.SyncWait(); err != nil {
			return err
		}
	}
	return b.b.Close()
}

// guardPanic calls f and returns a panic as an error. Pebble panics when it cannot write its log.
func guardPanic[T any](f func() (T, error)) (result T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return f()
}

// reportFailure logs err and calls Options.OnFailure. The pipeline calls it once, when it already refuses writes.
func (s *Store) reportFailure(err error) {
	s.opts.Logger.Error(
		"the store has failed and accepts no more writes; restart the process", "dir", s.opts.Dir, "error", err,
	)
	if s.opts.OnFailure != nil {
		s.opts.OnFailure(err)
	}
}

// Commit implements storage.Store.
func (s *Store) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	if err := validateTxn(txn); err != nil {
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
		if err := s.lifetime.enter(ctx); err != nil {
			return 0, err // a closed store returns ErrClosed, not ErrNoSpace
		}
		s.lifetime.leave()
		s.space.refused.Add(1)
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

// validateTxn returns an error if a key is invalid, if a time to live is negative, or if two operations have the same
// key.
func validateTxn(txn storage.Txn) error {
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
		if containsKey(txn.Ops[:i], key, seen) {
			return fmt.Errorf("embedded: key %q occurs twice in one transaction", key)
		}
	}
	return nil
}

// containsKey reports whether ops contain key. If seen is not nil, it is used instead of ops: seen must contain
// the keys of ops, and key is added to it.
func containsKey(ops []storage.Op, key string, seen map[string]struct{}) bool {
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

// txnSize returns the number of bytes of all keys and values in txn, and of txn.By.
func txnSize(txn storage.Txn) int {
	n := len(txn.By)
	for i := range txn.Ops {
		n += len(txn.Ops[i].Key) + len(txn.Ops[i].Value)
	}
	for i := range txn.Conditions {
		n += len(txn.Conditions[i].Key)
	}
	return n
}

// Compact implements storage.Store. It returns when all versions that are no longer readable are deleted. If it is
// cancelled, the next compaction deletes the rest.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	if err := s.lifetime.enter(ctx); err != nil {
		return err
	}
	defer s.lifetime.leave()
	if revision < 0 {
		return errNegativeRevision
	}
	if durable := s.hub.durable.Load(); revision > durable {
		return &storage.FutureRevisionError{Revision: revision, Current: durable}
	}
	return s.compactor.compact(ctx, revision)
}

// Close implements storage.Store. It ends, in this order, the background goroutines, queued commits, watchers, calls of
// other methods, and the database.
func (s *Store) Close() error {
	s.lifetime.closeOnce.Do(func() {
		s.lifetime.stop()
		s.lifetime.background.Wait()
		s.pipeline.close()
		if !s.opts.following {
			s.revisionFile.write(s.hub.durable.Load())
		}
		if s.opts.HistoryWindow > 0 {
			s.compactor.saveSamples()
		}
		s.hub.close()
		s.lifetime.mu.Lock()
		defer s.lifetime.mu.Unlock()
		s.lifetime.closed = true
		if s.opts.following {
			s.lifetime.closeErr = s.db.Flush()
		}
		s.lifetime.closeErr = errors.Join(s.lifetime.closeErr, s.closeDB())
	})
	return s.lifetime.closeErr
}

// removeFiles removes the files of a temporary store.
func (o *Options) removeFiles() error {
	if !o.temporary {
		return nil
	}
	return o.FS.RemoveAll(o.Dir)
}

// closeFailedTimeout limits how long the closing of a failed database may take. Such a database may hold one of its
// locks forever.
const closeFailedTimeout = 2 * time.Second

// closeDB closes the database and unlocks the directory. After a failure it waits no longer than
// closeFailedTimeout. If the database has not closed by then, the directory stays locked, because the database may
// still write to it.
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
	stuck, cause := s.importFailed, error(nil)
	for {
		select {
		case err := <-done:
			return errors.Join(cause, err, s.lock.Close(), s.opts.removeFiles())
		case cause = <-stuck:
			stuck, expired = nil, time.After(closeFailedTimeout) // only the first error is reported
		case <-expired:
			return errors.Join(cause, fmt.Errorf("embedded: the failed database in %s did not close", s.opts.Dir))
		}
	}
}
