package offsite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/copies"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// pollInterval is the time between two looks of a standby at the copy and at its lock.
const pollInterval = time.Second

// Standby follows the copy of another server, and takes over from it.
type Standby struct {
	// Config says where the copy is (Backup), and where the data is (DataDir).
	Config *config.Storage
	// Identities are the private keys of an encrypted copy.
	Identities []age.Identity
	// TakeOver makes the standby take over as soon as the lock of the copy is free. Otherwise it waits for Promote.
	TakeOver bool
	// Name says to people which server this is.
	Name string
	// Serve, unless it is nil, starts a server for reads of what follows the copy. Run calls end before that store is closed, and Serve again
	// when there is another one.
	Serve func(context.Context, *Following) (end func(), err error)
	Log   *slog.Logger

	bucket     bucket.Bucket
	lock       *copies.Lock
	follower   *copies.Follower
	problem    *string // the last error that was logged, "" for none; nil at first
	last       atomic.Pointer[look]
	endServing func() // nil while nothing is served
}

// Run follows the copy until this server is the one that may write. The data directory then has the store with which it starts.
func (s *Standby) Run(ctx context.Context) (h *copies.Handover, err error) {
	held, err := datadir.Open(s.Config.DataDir, s.Log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	if err := datadir.NotRestoring(s.Config.DataDir); err != nil {
		return nil, err
	}
	c := &s.Config.Backup
	b, closeBucket, err := openPlace(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeBucket()) }()
	holder, err := copies.Holder(s.record(), c.To)
	if err != nil {
		return nil, err
	}
	if err := s.demand(); err != nil { // an order to a standby before this one
		return nil, err
	}
	s.bucket = b
	s.lock = &copies.Lock{
		Bucket: b, Holder: holder, Name: s.Name, Time: c.LockDuration, Since: copies.SinceBoot, Strict: true, Exclusive: true,
	}
	following := datadir.Following(s.Config.DataDir)
	s.follower = &copies.Follower{
		Bucket: b, Identities: s.Identities, Work: following + ".images", Store: embedded.Options{Dir: following, Logger: s.Log},
		BeforeClose: s.stopServing,
	}
	defer func() { err = errors.Join(err, s.follower.Close(), os.RemoveAll(s.follower.Work)) }()
	renewing, stop := context.WithCancel(ctx)
	defer stop()
	go s.renew(renewing)
	for {
		h, err := s.look(ctx)
		if h != nil && err == nil {
			return h, nil
		}
		if s.TakeOver && errors.As(err, new(*sharedDataError)) {
			return nil, err
		}
		s.report(err)
		if err := s.serve(ctx); err != nil {
			return nil, err
		}
		if err := background.Sleep(ctx, pollInterval); err != nil {
			return nil, err
		}
	}
}

// renew renews the lock while it is held and this server does not serve yet.
func (s *Standby) renew(ctx context.Context) {
	for background.Sleep(ctx, s.Config.Backup.LockDuration/4) == nil {
		if s.lock.Epoch() != 0 {
			_ = s.lock.Renew(ctx) // the takeover fails if the lock ends
		}
	}
}

// record returns the path of the record.
func (s *Standby) record() string { return datadir.CopyRecord(s.Config.DataDir) }

// report logs an error once.
func (s *Standby) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if s.problem != nil && text == *s.problem {
		return
	}
	if s.problem = &text; err == nil {
		s.Log.Info("the standby follows the copy", "revision", s.follower.Position().Revision, "changed", s.follower.Position().Time)
		return
	}
	s.Log.Warn("the standby cannot follow the copy; will try again", "error", err)
}

// look does one step. It returns a Handover when this server may write.
func (s *Standby) look(ctx context.Context) (*copies.Handover, error) {
	began := copies.SinceBoot()
	seen, err := s.place(ctx)
	if err != nil {
		return nil, err
	}
	s.lock.Force = promoted(s.Config.DataDir)
	x, err := copies.ReadIndex(ctx, s.bucket)
	if err != nil {
		return nil, err
	}
	own, err := s.ownStore(x)
	if err == nil && !own {
		err = s.follower.Follow(ctx, x)
	}
	if err != nil {
		return nil, err
	}
	s.last.Store(&look{began, s.follower.Position(), seen.Holder})
	switch {
	case !s.TakeOver && !s.lock.Force:
		return nil, nil
	case seen.Source != "":
		return nil, &sharedDataError{seen.Source}
	}
	var h *copies.Handover
	if own {
		h, err = s.goOn(ctx, x)
	} else {
		h, err = s.follower.TakeOver(ctx, s.lock)
	}
	var held *copies.HeldError
	switch {
	case errors.As(err, &held):
		return nil, shared(held)
	case err != nil || h == nil:
		return nil, err
	}
	if !own {
		err = s.install(h)
	}
	if err = errors.Join(err, s.demand()); err != nil {
		return nil, errors.Join(err, s.lock.Release(ctx))
	}
	return h, nil
}

// goOn takes the lock for the store in the data directory. It returns nil if another server has written meanwhile.
func (s *Standby) goOn(ctx context.Context, x *copies.Index) (*copies.Handover, error) {
	if err := s.lock.Acquire(ctx, x.Newest()); err != nil {
		return nil, err
	}
	x, err := copies.ReadIndex(ctx, s.bucket)
	own := false
	if err == nil {
		own, err = s.ownStore(x)
	}
	if err != nil || !own {
		return nil, errors.Join(err, s.lock.Release(ctx))
	}
	return &copies.Handover{Lock: s.lock}, nil
}

// shared returns an error for a holder that has to be stopped by a person.
func shared(held *copies.HeldError) error {
	if held.Shared {
		return held
	}
	return nil
}

// sharedDataError is the error of a takeover of data that several servers have in etcd.
type sharedDataError struct{ source string }

func (e *sharedDataError) Error() string {
	return fmt.Sprintf("this is the copy of %s: its servers go on by themselves, so a standby can follow it, but cannot take over. "+
		"\"keelson restore\" makes a data directory of the copy", e.source)
}

// place makes sure that the place is the one that was found there at first, and remembers it. It returns what the lock says.
func (s *Standby) place(ctx context.Context) (seen copies.Seen, err error) {
	r, err := copies.ReadRecord(s.record(), s.Config.Backup.To)
	if err != nil {
		return seen, err
	}
	s.lock.Expect(r.Place)
	seen, err = s.lock.Look(ctx)
	if err != nil || seen.Place == r.Place {
		return seen, err
	}
	return seen, copies.UpdateRecord(s.record(), s.Config.Backup.To, func(r *copies.Record) { r.Place = seen.Place })
}

// ownStore reports whether no other server has written to the copy since the store in the data directory did, or was restored from it; or
// if there is no copy yet.
func (s *Standby) ownStore(x *copies.Index) (bool, error) {
	r, err := copies.ReadRecord(s.record(), s.Config.Backup.To)
	if err != nil {
		return false, err
	}
	_, err = os.Stat(datadir.StoreDir(s.Config.DataDir))
	return x.Newest() == 0 || err == nil && r.Epoch >= x.Newest(), nil
}

// install puts the store that has followed the copy in its place, and the files of the copy beside it.
func (s *Standby) install(h *copies.Handover) error {
	dir := s.Config.DataDir
	// It comes first: a store that is opened below this revision would give clients revisions that they have seen with other content.
	if err := copies.UpdateRecord(s.record(), s.Config.Backup.To, func(r *copies.Record) { r.MinRevision = h.Next }); err != nil {
		return err
	}
	store, replaced := datadir.StoreDir(dir), datadir.Replaced(dir)
	if _, err := os.Stat(store); err == nil { // of this server, before another one took over
		if err := errors.Join(os.RemoveAll(replaced), os.Rename(store, replaced)); err != nil {
			return err
		}
	}
	if err := os.Rename(datadir.Following(dir), store); err != nil {
		return err
	}
	if err := errors.Join(s.installFiles(), syncDir(dir)); err != nil {
		return err
	}
	return copies.UpdateRecord(s.record(), s.Config.Backup.To, func(r *copies.Record) { r.Epoch, r.Restored = h.Epoch, false })
}

// installFiles writes those files of the copy that the data directory does not have.
func (s *Standby) installFiles() error {
	for name, content := range s.follower.Files() {
		path := filepath.Join(s.Config.DataDir, name)
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) || !filepath.IsLocal(name) {
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), certs.WriteFile(path, content, datadir.PrivateFile)); err != nil {
			return err
		}
	}
	return nil
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// demand removes the order of Promote.
func (s *Standby) demand() error {
	if err := os.Remove(datadir.Promotion(s.Config.DataDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func promoted(dataDir string) bool {
	_, err := os.Lstat(datadir.Promotion(dataDir))
	return err == nil
}

// Promote orders the standby of a data directory to take over as soon as the lock of the copy is free.
func Promote(dataDir string) error {
	lock, err := datadir.LockDataDir(dataDir)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("no standby uses the data directory %s", dataDir), lock.Close())
	case !errors.Is(err, datadir.ErrUsed):
		return err
	}
	return certs.WriteFile(datadir.Promotion(dataDir), nil, datadir.PrivateFile)
}
