package copies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// Store is a store of which a copy can be kept. All methods but Export and Hold are those of storage.Store and storage.History.
type Store interface {
	Revision(ctx context.Context) (int64, error)
	Stats() storage.Stats
	Floor(scope storage.Scope) int64
	Changes(ctx context.Context, r storage.ChangesRequest) (storage.ChangesResult, error)
	WrittenAt(ctx context.Context, revision int64) (time.Time, []byte, error)
	Export(ctx context.Context) (*embedded.Export, error)
	// Hold keeps all changes after a revision. written is Stats.WrittenBytes at that revision.
	Hold(revision, written int64)
}

// Shared is a Store that several processes have, because all of them use the data. Lock.Source is set.
type Shared interface {
	Store
	// Await waits until the store has all changes that were made before, also by other processes.
	Await(ctx context.Context) error
}

// Options say what is copied, and where. Store, Bucket, Lock, Now and Log must be set.
type Options struct {
	Store  Store
	Bucket bucket.Bucket
	// Interval is the time between two looks for changes. Retention is how far back states can be restored.
	Interval, Retention time.Duration
	// Recipients are those for whom objects are encrypted; empty: they are not encrypted.
	Recipients []age.Recipient
	// Program is what writes the objects.
	Program string
	// Files returns the files of the server that go into each image; nil: none.
	Files func(context.Context) (map[string][]byte, error)
	// Lock keeps other processes from writing to the copy. Lost, unless it is nil, is called when another process has it; then the lock is
	// not taken again, because the store may have changes that the other process does not know.
	Lock *Lock
	Lost func(error)
	// Handover says where the copy ended when Lock was taken from another server; nil if the store was not made by a Follower.
	Handover *Handover
	// Record is the path of the Record in the data directory, and To what it says about the place. Without a record any store may begin a
	// new line of history in the copy.
	Record, To string
	Now        func() time.Time
	Log        *slog.Logger
}

const (
	// segmentChanges and segmentBytes bound a segment before it is merged, and so the memory that one takes.
	segmentChanges = 1000
	segmentBytes   = 8 << 20
)

// Status is how far a copy is.
type Status struct {
	// Revision is the last revision that is in the copy; 0 before it is known.
	Revision int64
	// Failing is since when the copy cannot be written, zero if it can. Err says why.
	Failing time.Time
	Err     error
	// StoreBytes is storage.Stats.WrittenBytes at Revision.
	StoreBytes int64
	// Other is the server that writes the copy, "" if it is this one. Only a Shared store can be copied by another one.
	Other string
	// Objects and Bytes are what this process has written, Images the images among them.
	Objects, Bytes, Images int64
}

// Shipper keeps a copy. One goroutine writes changes, another one does maintenance, which may take long.
type Shipper struct {
	Options
	writer     *writer
	shared     Shared // Options.Store, nil if that is not shared
	imageBytes int64  // see minImageBytes

	wake chan struct{} // capacity 1; receives when Confirm waits
	runs atomic.Bool   // Run has not ended

	mu       sync.Mutex    // guards the fields below, and the content of line
	line     *Line         // nil before the bucket was read
	position int64         // all changes up to this revision are in the copy
	wanted   int64         // a revision for which Confirm waits, which readers of the store do not see yet
	moved    chan struct{} // closed and replaced when position changes
	status   Status
}

// ErrForeign is the error of a store that does not have all changes of the copy, because another server has written them.
var ErrForeign = errors.New("the copy has changes of another server")

// NewShipper returns a Shipper. Run starts it.
func NewShipper(o Options) (*Shipper, error) {
	w := &writer{bucket: o.Bucket, lock: o.Lock, recipients: o.Recipients, program: o.Program}
	s := &Shipper{Options: o, writer: w, imageBytes: minImageBytes, wake: make(chan struct{}, 1), moved: make(chan struct{})}
	s.shared, _ = o.Store.(Shared)
	if len(o.Recipients) == 0 {
		return s, nil
	}
	var err error
	w.own, err = age.GenerateX25519Identity()
	return s, err
}

// Status returns how far the copy is.
func (s *Shipper) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.Objects, status.Bytes = s.writer.objects.Load(), s.writer.bytes.Load()
	return status
}

// otherPause is the longest time between two looks at the lock that another process holds.
const otherPause = 5 * time.Second

// longestPause is the longest time between two tries while the bucket fails.
const longestPause = 30 * time.Second

// Run keeps the copy up to date until ctx ends.
func (s *Shipper) Run(ctx context.Context) {
	s.runs.Store(true)
	defer s.runs.Store(false)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // also after a panic
	defer s.forget()
	running.Go(func() { s.keepLock(ctx) })
	running.Go(func() { s.keepInOrder(ctx) })
	pause := s.Interval
	for ctx.Err() == nil {
		err := s.step(ctx)
		if ctx.Err() != nil {
			return
		}
		other := s.otherWriter(err)
		if other {
			err = nil
		}
		s.note(err)
		switch {
		case other:
			pause = min(s.Lock.Time/renewals, otherPause)
		case err == nil:
			pause = s.Interval
		default:
			pause = min(2*pause, max(longestPause, s.Interval))
		}
		select {
		case <-ctx.Done():
		case <-time.After(withJitter(pause)):
		case <-s.woken(err):
		}
	}
}

// otherWriter reports whether a step has failed because another process copies the shared store, and records that.
func (s *Shipper) otherWriter(err error) bool {
	var held *HeldError
	other := s.shared != nil && errors.As(err, &held)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Other = ""; other {
		s.status.Other = held.Name
	}
	return other
}

// woken returns the channel that ends the pause early. After an error the pause is not ended early.
func (s *Shipper) woken(err error) <-chan struct{} {
	if err != nil {
		return nil
	}
	return s.wake
}

// withJitter returns a random time between a half of d and d.
func withJitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// keepLock renews the lock until ctx ends.
func (s *Shipper) keepLock(ctx context.Context) {
	every := time.NewTicker(s.Lock.Time / renewals)
	defer every.Stop()
	for {
		s.renew(ctx)
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// renew renews the lock, if it is held.
func (s *Shipper) renew(ctx context.Context) {
	err := ErrLost
	if s.Lock.Epoch() != 0 {
		bounded, cancel := context.WithTimeout(ctx, s.Lock.Time/renewals)
		defer cancel()
		err = s.Lock.Renew(bounded)
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case !errors.Is(err, ErrLost):
		s.Log.Warn("the lock of the copy was not renewed", "error", err)
	case s.Lost != nil:
		s.Lost(err)
	}
}

// renewals is how often the lock is renewed in the time that it is valid.
const renewals = 3

// keepInOrder does maintenance until ctx ends.
func (s *Shipper) keepInOrder(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(withJitter(max(s.Interval, maintenancePause))):
		}
		for {
			did, err := s.maintain(ctx)
			if err != nil && ctx.Err() == nil {
				s.Log.Warn("the copy of the store was not put in order; will try again", "error", err)
			}
			if err != nil || !did {
				break
			}
		}
	}
}

// maintenancePause is the shortest time between two looks for maintenance.
const maintenancePause = time.Second

// Finish writes what is not yet in the copy, and then gives up the lock. Run has ended, and nothing is written to the store any more.
func (s *Shipper) Finish(ctx context.Context) error {
	if s.runs.Load() {
		return errors.New("an earlier request to the bucket has not ended")
	}
	if s.shared != nil && s.Lock.Epoch() == 0 {
		return nil // another process copies the changes
	}
	defer s.forget()
	err := s.step(ctx)
	if l := s.current(); err == nil && len(l.Images) == 0 {
		_, err = s.maintain(ctx) // it writes the image
	}
	s.note(err)
	if err != nil {
		return err // the lock is kept: if this server is started again soon, it copies the rest, and nothing is lost
	}
	return s.Lock.Release(ctx)
}

// AwaitLock waits until the lock is valid. It fails with ErrLost if another process has it.
func (s *Shipper) AwaitLock(ctx context.Context) error {
	for !s.Lock.Valid() {
		if s.Lock.Epoch() == 0 {
			return ErrLost
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(confirmPause):
		}
	}
	return nil
}

// Confirm waits until all changes up to a revision are in the copy. The revision is durable in the store; readers may not see it yet. It
// fails with ErrLost if another process has the lock and Options.Lost is set.
func (s *Shipper) Confirm(ctx context.Context, revision int64) error {
	s.mu.Lock()
	s.wanted = max(s.wanted, revision)
	s.mu.Unlock()
	for {
		s.mu.Lock()
		copied, moved := s.line != nil && len(s.line.Images) > 0 && s.position >= revision, s.moved
		s.mu.Unlock()
		// If the lock has ended, another server may have taken over before the last segment was written, and would not read it.
		if copied && s.Lock.Valid() {
			return nil
		}
		if s.Lost != nil && s.Lock.Epoch() == 0 {
			return ErrLost
		}
		select {
		case s.wake <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		case <-time.After(confirmPause):
		}
	}
}

// confirmPause is the longest time after which Confirm looks again whether the lock is valid.
const confirmPause = 100 * time.Millisecond

// note records the result of a step, and logs when it begins or ends to fail.
func (s *Shipper) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && s.status.Err == nil:
		s.status.Failing = s.Now()
		s.Log.Error("the copy of the store cannot be written; will try again", "error", err)
	case err == nil && s.status.Err != nil:
		s.Log.Info("the copy of the store is written again", "after", s.Now().Sub(s.status.Failing).Round(time.Second))
		s.status.Failing = time.Time{}
	}
	s.status.Err = err
}

// reached records up to which revision the line has all changes, and storage.Stats.WrittenBytes at that revision. The store keeps all
// later changes.
func (s *Shipper) reached(l *Line, revision, storeBytes int64) {
	s.Store.Hold(revision, storeBytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line, s.position = l, revision
	if len(l.Images) > 0 { // before, nothing can be restored
		s.status.Revision, s.status.StoreBytes = revision, storeBytes
	}
	close(s.moved)
	s.moved = make(chan struct{})
}

// current returns the line that is written, nil if it is not known.
func (s *Shipper) current() *Line {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.line
}

// forget makes the next step read what the bucket has.
func (s *Shipper) forget() {
	s.mu.Lock()
	l := s.line
	s.line = nil
	s.mu.Unlock()
	if l != nil {
		if export := s.takeFirst(l); export != nil {
			export.Close()
		}
	}
}

// takeFirst returns Line.first, which the caller closes. nil: there is none, or another caller has it.
func (s *Shipper) takeFirst(l *Line) *embedded.Export {
	s.mu.Lock()
	defer s.mu.Unlock()
	export := l.first
	l.first = nil
	return export
}

// step writes what has changed since the last one.
func (s *Shipper) step(ctx context.Context) error {
	if l := s.current(); l == nil {
		if err := s.begin(ctx); err != nil {
			return err
		}
	}
	for {
		done, err := s.ship(ctx)
		if err != nil {
			s.forget()
			return err
		}
		if done {
			return nil
		}
	}
}

// begin finds out where the copy ends, and whether the store goes on there. If it does not, it begins a new line of history.
func (s *Shipper) begin(ctx context.Context) error {
	if s.Lost != nil && s.Lock.Epoch() == 0 {
		return ErrLost
	}
	if err := s.take(ctx); err != nil {
		return err
	}
	if s.Handover != nil && s.Handover.Next > 0 {
		return s.TakeOver(ctx)
	}
	x, err := ReadIndex(ctx, s.Bucket)
	if err != nil {
		return err
	}
	newest := x.Newest()
	number := s.writer.epoch.Load()
	if newest > number {
		return fmt.Errorf("%w: epoch %d, while this one writes epoch %d", ErrForeign, newest, number)
	}
	l := x.current()
	if l == nil {
		return s.newLine(ctx)
	}
	end, at := l.end()
	follows, err := s.follows(ctx, l, end, at)
	switch {
	case err != nil:
		return err
	case follows && l.Epochs[0] == number:
		s.goOn(l, end)
		return nil
	case newest == number: // what it has is not the end of the line
		return s.restartLine(ctx)
	case follows:
		return s.continueLine(ctx, l, end)
	}
	if err := s.foreign(ctx, newest, end); err != nil {
		return err
	}
	return s.newLine(ctx)
}

// take takes the lock, if it is not held, and waits until the store has what another process may have copied.
func (s *Shipper) take(ctx context.Context) error {
	err := s.Acquire(ctx)
	if err == nil && s.shared != nil {
		err = s.shared.Await(ctx)
	}
	return err
}

// TakeOver goes on where another server has ended (Options.Handover). Between the last revision that it has copied and the first one of
// this server are those that it may have given to changes that were lost. It is called before the first request is answered, so that the
// other server cannot come back and find that nobody has written.
func (s *Shipper) TakeOver(ctx context.Context) error {
	if err := s.Acquire(ctx); err != nil {
		return err
	}
	x, err := ReadIndex(ctx, s.Bucket)
	if err != nil {
		return err
	}
	number := s.writer.epoch.Load()
	newest := x.Newest()
	if newest == 0 || newest > s.Handover.Epoch && newest != number {
		return fmt.Errorf("%w: epoch %d, while the one that was followed is epoch %d", ErrForeign, newest, s.Handover.Epoch)
	}
	l := x.current()
	if l == nil {
		return ErrEmpty
	}
	if newest != number { // an earlier try has not begun the epoch
		if err := s.continueLine(ctx, l, s.Handover.Revision); err != nil {
			return err
		}
	}
	n := changelog.Name{After: s.Handover.Revision, Through: s.Handover.Next, Last: s.Now()}
	segment, err := s.writer.segment(ctx, number, n, func(*changelog.Writer) error { return nil })
	if err != nil {
		s.forget()
		return err
	}
	s.mu.Lock()
	l.Segments = append(l.Segments, segment)
	s.mu.Unlock()
	s.Handover = nil
	s.goOn(l, n.Through)
	return nil
}

// foreign returns ErrForeign unless the store may begin a new line of history in a copy that it does not go on in, and that ends at a
// revision: because it was restored from there, or because it has written the end itself, and does not have all changes since any more.
func (s *Shipper) foreign(ctx context.Context, newest, end int64) error {
	if s.shared != nil {
		return nil // the copy is of the same data (Lock.Source), but changes are missing
	}
	r, err := ReadRecord(s.Record, s.To)
	if err != nil || s.Record == "" || r.Restored && r.Epoch >= newest {
		return err
	}
	current, err := s.Store.Revision(ctx)
	if err != nil {
		return err
	}
	if r.Epoch >= newest && current >= end && s.Store.Floor(storage.Scope{}) > end {
		return nil
	}
	return fmt.Errorf("%w (epoch %d, up to revision %d), which the data directory does not have: this is the copy of another cluster, or "+
		"another server that took over has written them, or the data directory is older than the copy. Name an empty place, or restore "+
		"from the copy", ErrForeign, newest, end)
}

// Check returns ErrForeign if the store does not have all changes of the copy, because another server has written them.
func (s *Shipper) Check(ctx context.Context) error {
	x, err := ReadIndex(ctx, s.Bucket)
	if err != nil {
		return err
	}
	l := x.current()
	if l == nil {
		return nil
	}
	end, at := l.end()
	follows, err := s.follows(ctx, l, end, at)
	if err != nil || follows {
		return err
	}
	return s.foreign(ctx, x.Newest(), end)
}

// Acquire takes the lock, if it is not held. A new holder writes to a new epoch. It fails with *HeldError while another process may hold
// the lock.
func (s *Shipper) Acquire(ctx context.Context) error {
	if epoch := s.Lock.Epoch(); epoch != 0 {
		s.writer.epoch.Store(epoch)
		return nil
	}
	x, err := ReadIndex(ctx, s.Bucket)
	if err != nil {
		return err
	}
	r, err := ReadRecord(s.Record, s.To)
	if err != nil {
		return err
	}
	s.Lock.Expect(r.Place)
	if err := s.Lock.Acquire(ctx, x.Newest()); err != nil {
		return err
	}
	s.writer.epoch.Store(s.Lock.Epoch())
	if !s.Lock.Conditional() {
		s.Log.Warn("the place of the copy does not keep conditions of writes, so two servers could write to it at the same time")
	}
	return nil
}

// goOn makes a line the one that is written, with all changes up to a revision.
func (s *Shipper) goOn(l *Line, revision int64) { s.reached(l, revision, s.Status().StoreBytes) }

// continueLine begins an epoch that goes on from a revision of the line.
func (s *Shipper) continueLine(ctx context.Context, l *Line, revision int64) error {
	number := s.writer.epoch.Load()
	if err := s.writeRecord(number); err != nil {
		return err
	}
	origin := Origin{Epoch: l.Epochs[0], Revision: revision}
	var err error
	origin.Object, err = s.writer.put(ctx, number, fmt.Sprintf(originFormat, origin.Epoch, origin.Revision), func(io.Writer) error { return nil })
	if err != nil {
		return err
	}
	l.cut(revision) // what the epoch before has written since the bucket was read does not count
	l.Epochs, l.Origins = slices.Insert(l.Epochs, 0, number), slices.Insert(l.Origins, 0, origin)
	s.goOn(l, revision)
	return nil
}

// restartLine begins a new epoch, and with it a new line of history: the changes after the end of the line that was written are gone.
func (s *Shipper) restartLine(ctx context.Context) error {
	s.forget() // maintenance must not write parts of the old line to the new epoch
	if err := s.Lock.Advance(ctx); err != nil {
		return err
	}
	s.writer.epoch.Store(s.Lock.Epoch())
	return s.newLine(ctx)
}

// newLine begins a line of history. Maintenance writes its image, which may take long, while changes after it are written.
func (s *Shipper) newLine(ctx context.Context) error {
	number := s.writer.epoch.Load()
	if err := s.writeRecord(number); err != nil {
		return err
	}
	export, err := s.Store.Export(ctx)
	if err != nil {
		return err
	}
	s.goOn(&Line{Epochs: []int64{number}, first: export}, export.Revision())
	return nil
}

// follows reports whether the store goes on where a line ends: it has written that revision at that time, and has all changes since.
func (s *Shipper) follows(ctx context.Context, l *Line, revision int64, at time.Time) (bool, error) {
	s.mu.Lock()
	wanted, number := s.wanted, s.writer.epoch.Load()
	s.mu.Unlock()
	current, err := s.Store.Revision(ctx)
	if err != nil || revision == 0 || revision > max(current, wanted) || s.Store.Floor(storage.Scope{}) > revision {
		return false, err
	}
	if number != 0 && l.writtenBy(revision) == number {
		return true, nil // nobody else writes to this epoch
	}
	written, _, err := s.Store.WrittenAt(ctx, revision)
	if err == nil && written.IsZero() && s.shared != nil {
		return true, nil // it has all changes since, and began there
	}
	if err == nil && written.IsZero() { // a revision that a takeover left out
		r, err := ReadRecord(s.Record, s.To)
		return err == nil && r.Place != "" && r.Epoch >= l.Epochs[0], err
	}
	return err == nil && written.UnixMilli() == at.UnixMilli(), err
}

// writeImage writes an image of the present state to the epoch of a line.
func (s *Shipper) writeImage(ctx context.Context, l *Line) (image Image, err error) {
	export := s.takeFirst(l)
	if export == nil {
		if export, err = s.Store.Export(ctx); err != nil {
			return image, err
		}
	}
	defer export.Close()
	var files map[string][]byte
	if s.Files != nil {
		if files, err = s.Files(ctx); err != nil {
			return image, fmt.Errorf("the keys of the server cannot be read: %w", err)
		}
	}
	now := s.Now()
	at, _, err := s.Store.WrittenAt(ctx, export.Revision())
	if err != nil {
		return image, err
	}
	if at.IsZero() {
		at = now
	}
	image.Epoch, image.Revision, image.Time = l.Epochs[0], export.Revision(), time.UnixMilli(at.UnixMilli())
	image.Object, err = s.writer.put(ctx, image.Epoch, fmt.Sprintf(imageFormat, image.Revision, at.UnixMilli()), func(w io.Writer) error {
		_, err := backup.Save(ctx, w, export, backup.SaveOptions{Created: now, Program: s.Program, Past: true, Files: files})
		return err
	})
	if err != nil {
		return image, fmt.Errorf("writing an image: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Images++
	return image, nil
}

// ship writes a segment of changes that are not in the copy. done is true if there are no more.
func (s *Shipper) ship(ctx context.Context) (done bool, err error) {
	s.mu.Lock()
	l, after, wanted, written := s.line, s.position, s.wanted, s.status.StoreBytes
	s.mu.Unlock()
	if l == nil {
		return false, errOtherEpoch
	}
	now := s.Store.Stats()
	r := storage.ChangesRequest{After: after, Limit: segmentChanges, Bytes: segmentBytes}
	if wanted > now.Revision {
		r.Through = wanted
	}
	result, err := s.Store.Changes(ctx, r)
	if err != nil {
		return false, err
	}
	if floor := s.Store.Floor(storage.Scope{}); floor > after {
		s.Log.Warn("the store does not have all changes since the end of its copy any more; a new image is written",
			"copied", after, "floor", floor)
		return false, s.restartLine(ctx)
	}
	if result.Through == after {
		return true, nil
	}
	size := int64(0)
	for i := range result.Changes {
		size += int64(len(result.Changes[i].Entry.Key) + len(result.Changes[i].Entry.Value))
	}
	n := changelog.Name{After: after, Through: result.Through}
	segment, err := s.writer.segment(ctx, l.Epochs[0], n, func(w *changelog.Writer) error {
		for _, t := range changelog.Transactions(result.Changes) {
			if err := w.Write(t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("writing changes: %w", err)
	}
	if written += size; !result.More { // otherwise only these changes are known to be copied
		written = now.WrittenBytes
	}
	s.mu.Lock()
	l.Segments = append(l.Segments, segment)
	s.mu.Unlock()
	s.reached(l, result.Through, written)
	return !result.More, nil
}

// writeRecord records the epoch that is begun.
func (s *Shipper) writeRecord(epoch int64) error {
	return UpdateRecord(s.Record, s.To, func(r *Record) { r.Epoch, r.Place, r.Restored = epoch, s.Lock.Place(), false })
}
