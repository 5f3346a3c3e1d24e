package copies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// Store is a store of which a copy can be kept.
type Store interface {
	storage.Store
	storage.History
	Export(ctx context.Context) (*embedded.Export, error)
}

// Options say what is copied, and where. Store, Bucket, Now and Log must be set.
type Options struct {
	Store  Store
	Bucket Bucket
	// Interval is the time between two looks for changes. Retention is how far back states can be restored.
	Interval, Retention time.Duration
	// Recipients are those for whom objects are encrypted; empty: they are not encrypted.
	Recipients []age.Recipient
	// Program is what writes the objects.
	Program string
	Now     func() time.Time
	Log     *slog.Logger
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
}

// Shipper keeps a copy. Only one may write to a bucket.
type Shipper struct {
	Options
	epoch       *Epoch // nil before the bucket was read
	position    int64  // all changes up to this revision are in the copy
	earlierGone bool   // there are no earlier epochs any more
	imageBytes  int64  // see minImageBytes
	// own can decrypt what this process has written, so that it can merge segments; nil if they are not encrypted.
	own *age.X25519Identity

	mu     sync.Mutex // guards status
	status Status
}

// NewShipper returns a Shipper. Run starts it.
func NewShipper(o Options) (*Shipper, error) {
	s := &Shipper{Options: o, imageBytes: minImageBytes}
	if len(o.Recipients) == 0 {
		return s, nil
	}
	var err error
	s.own, err = age.GenerateX25519Identity()
	return s, err
}

// Status returns how far the copy is.
func (s *Shipper) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// longestPause is the longest time between two tries while the bucket fails.
const longestPause = 30 * time.Second

// Run keeps the copy up to date until ctx ends.
func (s *Shipper) Run(ctx context.Context) {
	pause := s.Interval
	for ctx.Err() == nil {
		err := s.step(ctx)
		if ctx.Err() != nil {
			return
		}
		s.note(err)
		if pause = min(2*pause, max(longestPause, s.Interval)); err == nil {
			pause = s.Interval
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

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
	if s.epoch != nil {
		s.status.Revision = s.position
	}
}

// step writes what has changed since the last one, and then does at most one piece of maintenance.
func (s *Shipper) step(ctx context.Context) error {
	if s.epoch == nil {
		if err := s.begin(ctx); err != nil {
			return err
		}
	}
	for {
		done, err := s.ship(ctx)
		if err != nil {
			s.epoch = nil // the next step reads what the bucket has
			return err
		}
		if done {
			break
		}
	}
	if err := s.maintain(ctx); err != nil {
		s.epoch = nil
		return fmt.Errorf("maintaining the copy: %w", err)
	}
	return nil
}

// begin finds out where the copy ends, and begins a new epoch if the store does not go on there.
func (s *Shipper) begin(ctx context.Context) error {
	x, err := ReadIndex(ctx, s.Bucket)
	if err != nil {
		return err
	}
	e := x.Newest()
	if e == nil {
		return s.newEpoch(ctx, 1)
	}
	end, at := e.end()
	follows, err := s.follows(ctx, end, at)
	if err != nil {
		return err
	}
	if !follows {
		return s.newEpoch(ctx, e.Number+1)
	}
	s.epoch, s.position, s.earlierGone = e, end, false
	return nil
}

// end returns the revision up to which the epoch has all changes, and when it was written. The time is zero if there is no image. It
// begins with the oldest image: changes that only a later image has are missing for the moments in between.
func (e *Epoch) end() (revision int64, at time.Time) {
	if len(e.Images) == 0 {
		return 0, time.Time{}
	}
	image := e.Images[0]
	list, revision := e.chain(image.Revision, 0)
	if len(list) == 0 {
		return revision, image.Time
	}
	return revision, list[len(list)-1].Last
}

// follows reports whether the store has written a revision at a time, and has all changes since.
func (s *Shipper) follows(ctx context.Context, revision int64, at time.Time) (bool, error) {
	current, err := s.Store.Revision(ctx)
	if err != nil || revision == 0 || revision > current {
		return false, err
	}
	written, _, err := s.Store.WrittenAt(ctx, revision)
	return err == nil && !written.IsZero() && written.UnixMilli() == at.UnixMilli() && s.Store.Floor(storage.Scope{}) <= revision, err
}

// newEpoch begins an epoch with an image.
func (s *Shipper) newEpoch(ctx context.Context, number int64) error {
	e := &Epoch{Number: number}
	if err := s.writeImage(ctx, e); err != nil {
		return err
	}
	s.epoch, s.position, s.earlierGone = e, e.Images[0].Revision, false
	return nil
}

// writeImage adds an image of the present state to an epoch.
func (s *Shipper) writeImage(ctx context.Context, e *Epoch) error {
	export, err := s.Store.Export(ctx)
	if err != nil {
		return err
	}
	defer export.Close()
	now := s.Now()
	at, _, err := s.Store.WrittenAt(ctx, export.Revision())
	if err != nil {
		return err
	}
	if at.IsZero() {
		at = now
	}
	image := Image{Revision: export.Revision(), Time: time.UnixMilli(at.UnixMilli())}
	image.Object, err = s.put(ctx, e.Number, fmt.Sprintf(imageFormat, image.Revision, at.UnixMilli()), func(w io.Writer) error {
		_, err := backup.Save(ctx, w, export, backup.SaveOptions{Created: now, Program: s.Program, Past: true})
		return err
	})
	if err != nil {
		return fmt.Errorf("writing an image: %w", err)
	}
	e.Images = append(e.Images, image)
	return nil
}

// put writes an object of an epoch, encrypted if there are recipients.
func (s *Shipper) put(ctx context.Context, epoch int64, name string, write func(io.Writer) error) (Object, error) {
	o := Object{Name: fmt.Sprintf(epochFormat, epoch) + name}
	if len(s.Recipients) > 0 {
		o.Name += encrypted
	}
	err := s.Bucket.Put(ctx, o.Name, func(w io.Writer) error {
		out := &counted{Writer: w}
		defer func() { o.Size = out.n }()
		if len(s.Recipients) == 0 {
			return write(out)
		}
		sealed, err := age.Encrypt(out, append(slices.Clone(s.Recipients), s.own.Recipient())...)
		if err != nil {
			return err
		}
		return errors.Join(write(sealed), sealed.Close())
	})
	return o, err
}

// counted counts the bytes that are written.
type counted struct {
	io.Writer
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n += int64(n)
	return n, err
}

// ship writes a segment of changes that are not in the copy. done is true if there are no more.
func (s *Shipper) ship(ctx context.Context) (done bool, err error) {
	after := s.position
	result, err := s.Store.Changes(ctx, storage.ChangesRequest{After: after, Limit: segmentChanges, Bytes: segmentBytes})
	if err != nil {
		return false, err
	}
	if floor := s.Store.Floor(storage.Scope{}); floor > after {
		s.Log.Warn("the store does not have all changes since the end of its copy any more; a new image is written",
			"copied", after, "floor", floor)
		return false, s.newEpoch(ctx, s.epoch.Number+1)
	}
	if result.Through == after {
		return true, nil
	}
	segment, err := s.writeSegment(ctx, changelog.Name{After: after, Through: result.Through}, func(w *changelog.Writer) error {
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
	s.epoch.Segments, s.position = append(s.epoch.Segments, segment), result.Through
	return !result.More, nil
}

// writeSegment writes a segment. The name has the time of its last transaction, so it is written to a buffer first if n has none.
func (s *Shipper) writeSegment(
	ctx context.Context, n changelog.Name, fill func(*changelog.Writer) error,
) (segment Segment, err error) {
	h := changelog.Header{Epoch: s.epoch.Number, After: n.After, Program: s.Program}
	write := func(w io.Writer) (changelog.Totals, error) {
		out, err := changelog.NewWriter(w, h)
		if err != nil {
			return changelog.Totals{}, err
		}
		if err := fill(out); err != nil {
			out.Abort()
			return changelog.Totals{}, err
		}
		return out.Close(n.Through)
	}
	var buffered []byte
	if n.Last.IsZero() {
		var b buffer
		totals, err := write(&b)
		if err != nil {
			return segment, err
		}
		buffered = b
		if totals.Last != 0 {
			n.Last = time.UnixMilli(totals.Last)
		}
	}
	segment.Name, segment.own = n, true
	segment.Object, err = s.put(ctx, s.epoch.Number, n.String(), func(w io.Writer) error {
		if buffered != nil {
			_, err := w.Write(buffered)
			return err
		}
		_, err := write(w)
		return err
	})
	return segment, err
}

type buffer []byte

func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}
