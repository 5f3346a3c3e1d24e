package copies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
)

// writer writes and removes objects of a copy while its lock is held. All methods may be called concurrently.
type writer struct {
	bucket     bucket.Bucket
	lock       *Lock
	recipients []age.Recipient
	// own can decrypt what this process has written, so that it can merge segments; nil if they are not encrypted.
	own     *age.X25519Identity
	program string

	epoch          atomic.Int64 // to which this process writes; 0 before it is known
	objects, bytes atomic.Int64 // that were written
}

// mayWrite returns an error if another process may hold the lock, or if the epoch that is written to is another one now.
func (w *writer) mayWrite(ctx context.Context, epoch int64) error {
	if w.epoch.Load() != epoch {
		return errOtherEpoch
	}
	if w.lock.Valid() {
		return nil
	}
	if err := w.lock.Renew(ctx); err != nil { // it was not renewed in time, but perhaps nobody has taken it
		return err
	}
	if !w.lock.Valid() {
		return errLockEnded
	}
	return nil
}

// put writes an object of an epoch, encrypted if there are recipients.
func (w *writer) put(ctx context.Context, epoch int64, name string, write func(io.Writer) error) (bucket.Object, error) {
	o := bucket.Object{Name: fmt.Sprintf(epochFormat, epoch) + name}
	if err := w.mayWrite(ctx, epoch); err != nil {
		return o, err
	}
	if len(w.recipients) > 0 {
		o.Name += sealed
	}
	err := w.bucket.Put(ctx, o.Name, func(to io.Writer) error {
		out := &counted{Writer: to}
		defer func() { o.Size = out.n }()
		if len(w.recipients) == 0 {
			return write(out)
		}
		sealed, err := age.Encrypt(out, append(slices.Clone(w.recipients), w.own.Recipient())...)
		if err != nil {
			return err
		}
		return errors.Join(write(sealed), sealed.Close())
	})
	if err == nil {
		w.objects.Add(1)
		w.bytes.Add(o.Size)
	}
	return o, err
}

var (
	errLockEnded  = errors.New("the lock of the copy was not renewed in time")
	errOtherEpoch = errors.New("a new epoch of the copy has begun")
)

// remove removes objects of a line that ends with an epoch.
func (w *writer) remove(ctx context.Context, epoch int64, objects ...bucket.Object) error {
	for _, o := range objects {
		if err := w.mayWrite(ctx, epoch); err != nil {
			return err
		}
		if err := w.bucket.Delete(ctx, o.Name); err != nil {
			return err
		}
	}
	return nil
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

// segment writes a segment. The name has the time of its last transaction, so it is written to a buffer first if n has none.
func (w *writer) segment(
	ctx context.Context, epoch int64, n changelog.Name, fill func(*changelog.Writer) error,
) (out Segment, err error) {
	h := changelog.Header{Epoch: epoch, After: n.After, Program: w.program}
	write := func(to io.Writer) (changelog.Totals, error) {
		out, err := changelog.NewWriter(to, h)
		if err != nil {
			return changelog.Totals{}, err
		}
		if err := fill(out); err != nil {
			return changelog.Totals{}, err
		}
		return out.Close(n.Through)
	}
	var buffered []byte
	if n.Last.IsZero() {
		var b buffer
		totals, err := write(&b)
		if err != nil {
			return out, err
		}
		buffered = b
		if totals.Last != 0 {
			n.Last = time.UnixMilli(totals.Last)
		}
	}
	out.Name, out.Epoch, out.Until, out.own = n, epoch, n.Through, true
	out.Object, err = w.put(ctx, epoch, n.String(), func(to io.Writer) error {
		if buffered != nil {
			_, err := to.Write(buffered)
			return err
		}
		_, err := write(to)
		return err
	})
	return out, err
}

type buffer []byte

func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// readable reports whether this process can read a segment. It has no keys for those that another process has encrypted. Those of
// which not everything counts are left as they are.
func (w *writer) readable(x Segment) bool {
	return (!encrypted(x.Object) || x.own) && x.Until == x.Through
}

// open decrypts an object that this process has written.
func (w *writer) open(r io.Reader) (io.Reader, error) { return age.Decrypt(r, w.own) }
