package copies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// faulty is a bucket whose writes fail from time to time, before or after they have an effect.
type faulty struct {
	bucket.Bucket
	fail func() (before, after bool)
}

func (f *faulty) Swap(ctx context.Context, name string, content []byte, tag string) (string, error) {
	before, after := f.fail()
	if before {
		return "", errFault
	}
	newTag, err := f.Bucket.Swap(ctx, name, content, tag)
	if err != nil || !after {
		return newTag, err
	}
	return "", errFault
}

var errFault = errors.New("a fault of the bucket")

func (f *faulty) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	before, after := f.fail()
	if before {
		return errFault
	}
	if err := f.Bucket.Put(ctx, name, write); err != nil || !after {
		return err
	}
	return errFault
}

func (f *faulty) Delete(ctx context.Context, name string) error {
	before, after := f.fail()
	if before {
		return errFault
	}
	if err := f.Bucket.Delete(ctx, name); err != nil || !after {
		return err
	}
	return errFault
}

// world is a store with a copy, and a clock.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	now     atomic.Int64 // Unix nanoseconds
	options embedded.Options
	store   *embedded.Store
	bucket  bucket.Bucket
	shipper *Shipper
	keys    []age.Identity
	to      []age.Recipient
	broken  bool // the bucket has faults
}

func newWorld(t *testing.T, rng *rand.Rand) *world {
	t.Helper()
	w := &world{t: t, rng: rng}
	w.now.Store(time.UnixMilli(1_700_000_000_000).UnixNano())
	w.options = embedded.Options{
		Dir: t.TempDir(), HistoryWindow: -1, SweepInterval: time.Hour, ReserveBytes: -1,
		Clock: func() time.Time { return w.time() }, Logger: slog.New(slog.DiscardHandler),
	}
	if rng.IntN(2) == 0 {
		key, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		w.keys, w.to = []age.Identity{key}, []age.Recipient{key.Recipient()}
	}
	place, closeBucket, err := bucket.OpenDirectory(filepath.Join(t.TempDir(), "bucket"))
	if err != nil {
		t.Fatal(err)
	}
	w.bucket = &faulty{place, func() (bool, bool) {
		return w.broken && rng.IntN(5) == 0, w.broken && rng.IntN(5) == 0
	}}
	w.open()
	// The time of the first change tells the store from others.
	if _, err := w.store.Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Put("/first", nil)}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.store.Close(), closeBucket()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// time returns the time of the clock. The store reads it at any moment.
func (w *world) time() time.Time { return time.Unix(0, w.now.Load()) }

// pass lets time pass.
func (w *world) pass(d time.Duration) { w.now.Add(int64(d)) }

// open opens the store, and begins to copy it as a new process does.
func (w *world) open() {
	w.t.Helper()
	var err error
	if w.store, err = embedded.Open(w.options); err == nil {
		w.shipper, err = NewShipper(Options{
			Store: w.store, Bucket: w.bucket, Retention: 2 * time.Hour, Recipients: w.to, Now: func() time.Time { return w.time() },
			Log: slog.New(slog.DiscardHandler), Lock: w.lock("me"),
		})
	}
	w.shipper.imageBytes = 20 << 10 // so that images are renewed
	if err != nil {
		w.t.Fatal(err)
	}
}

// lock returns a lock of the bucket for a holder.
func (w *world) lock(holder string) *Lock {
	return &Lock{
		Bucket: w.bucket, Holder: holder, Name: "server " + holder, Time: time.Minute,
		Since: func() time.Duration { return w.time().Sub(time.UnixMilli(0)) },
	}
}

// commit makes up to n random changes, between which time passes.
func (w *world) commit(n int) {
	w.t.Helper()
	for range w.rng.IntN(n + 1) {
		w.pass(time.Duration(w.rng.IntN(20_000)) * time.Millisecond)
		txn := storage.Txn{By: []byte("me")}
		for _, k := range w.rng.Perm(20)[:1+w.rng.IntN(3)] {
			op := storage.Op{Key: fmt.Sprintf("/k%02d", k), Delete: w.rng.IntN(3) == 0}
			if !op.Delete {
				op.Value = []byte(strings.Repeat(fmt.Sprint(w.rng.Uint32()), 1+w.rng.IntN(100)))
			}
			txn.Ops = append(txn.Ops, op)
		}
		if _, err := w.store.Commit(w.t.Context(), txn); err != nil {
			w.t.Fatal(err)
		}
	}
}

// step lets the shipper work until it has nothing to do, or a step fails.
func (w *world) step() {
	w.t.Helper()
	for did := true; did; {
		err := w.shipper.step(w.t.Context())
		if err == nil {
			did, err = w.shipper.maintain(w.t.Context())
		}
		if err != nil {
			if !errors.Is(err, errFault) {
				w.t.Fatal(err)
			}
			return
		}
	}
}

// state returns the keys of the store at a revision.
func (w *world) state(revision int64) (out []string) {
	w.t.Helper()
	r, err := w.store.Range(w.t.Context(), storage.RangeRequest{Start: "/", End: "0", Revision: revision})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range r.Entries {
		out = append(out, fmt.Sprintf("%s %d %d %s", e.Key, e.CreateRevision, e.ModRevision, e.Value))
	}
	return out
}

// restored makes a store as it was at a moment, and returns its keys.
func (w *world) restored(target Target) (revision int64, out []string, err error) {
	x, err := ReadIndex(w.t.Context(), w.bucket)
	if err != nil {
		return 0, nil, err
	}
	p, err := x.Plan(target)
	if err != nil {
		return 0, nil, err
	}
	o := embedded.Options{Dir: w.t.TempDir(), ReserveBytes: -1, Logger: slog.New(slog.DiscardHandler)}
	done, err := p.Restore(w.t.Context(), w.bucket, o, w.t.TempDir(), w.keys)
	if err != nil {
		return 0, nil, err
	}
	r, err := embedded.OpenReader(o)
	if err != nil {
		return 0, nil, err
	}
	defer r.Close()
	e, err := r.Export()
	if err != nil {
		return 0, nil, err
	}
	defer e.Close()
	for r, err := range e.Records(w.t.Context()) {
		if err != nil {
			return 0, nil, err
		}
		out = append(out, fmt.Sprintf("%s %d %d %s", r.Key, r.CreateRevision, r.ModRevision, r.Value))
	}
	return done.Revision, out, nil
}

// TestRestoreTwin copies a store through restarts and faults of the bucket, and restores random moments: each is as the store was.
func TestRestoreTwin(t *testing.T) {
	for range effort.Rounds(20, 6) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, rand.New(rand.NewPCG(seed, 1)))
			w.step()
			began, err := w.store.Revision(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			from := w.time()
			for range 40 {
				w.broken = w.rng.IntN(2) == 0
				switch w.rng.IntN(6) {
				case 0:
					if err := w.store.Close(); err != nil {
						t.Fatal(err)
					}
					w.open()
				case 1:
					w.pass(time.Duration(w.rng.IntN(1000)) * time.Second)
				default:
					w.commit(15)
				}
				w.step()
			}
			w.broken = false
			w.step()
			last, err := w.store.Revision(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := w.shipper.position; got != last {
				t.Fatalf("copied to %d of %d", got, last)
			}
			first := w.oldest()
			if first.Time.Add(4 * time.Hour).Before(w.time()) {
				t.Errorf("the oldest image is of %v, the retention is two hours", w.time().Sub(first.Time))
			}
			if from.Before(first.Time) {
				if _, _, err := w.restored(Target{Time: from}); !errors.Is(err, errNoImage) {
					t.Errorf("before the oldest image: %v", err)
				}
			}
			began = max(began, first.Revision)
			for range 8 {
				want := began + w.rng.Int64N(last-began+1)
				if revision, got, err := w.restored(Target{Revision: want}); err != nil || revision > want || !slices.Equal(got, w.state(want)) {
					t.Errorf("revision %d: restored to %d, %d keys, %v", want, revision, len(got), err)
				}
				at := from.Add(time.Duration(w.rng.Int64N(int64(w.time().Sub(from)) + 1)))
				want, err := w.store.RevisionAt(t.Context(), storage.Scope{}, at)
				if err != nil {
					t.Fatal(err)
				}
				if want < began {
					continue // the retention has ended
				}
				if _, got, err := w.restored(Target{Time: at}); err != nil || !slices.Equal(got, w.state(want)) {
					t.Errorf("%v, revision %d: %d keys, %v", at, want, len(got), err)
				}
			}
		})
	}
}

// oldest returns the oldest image in the bucket.
func (w *world) oldest() Image {
	w.t.Helper()
	x, err := ReadIndex(w.t.Context(), w.bucket)
	if err != nil || len(x.Lines()) != 1 || len(x.Other) > 0 {
		w.t.Fatalf("%+v, %v", x, err)
	}
	return x.Lines()[0].Images[0]
}

// TestMergedSegments checks that segments of hours become few, and that the copy ends where it did.
func TestMergedSegments(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(1, 2)))
	for range 300 {
		w.commit(3)
		w.step()
	}
	w.pass(time.Hour)
	w.step()
	x, err := ReadIndex(t.Context(), w.bucket)
	if err != nil {
		t.Fatal(err)
	}
	e := x.Lines()[0]
	if n := len(e.Segments); n > 4 {
		t.Errorf("%d segments of %v", n, w.time().Sub(e.Images[0].Time))
	}
	last, err := w.store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, end := e.chain(e.Images[0].Revision, 0); end != last {
		t.Errorf("the copy ends at %d, the store is at %d", end, last)
	}
}

// TestListingDuringAMerge checks that segments that a listing has missed, because they were merged meanwhile, are found.
func TestListingDuringAMerge(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(1, 2)))
	for range 300 {
		w.commit(3)
		w.step()
	}
	missed, err := w.bucket.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x, err := ReadIndex(t.Context(), w.bucket)
	if err != nil {
		t.Fatal(err)
	}
	merged := x.Lines()[0].Segments[0].Object.Name
	missed = slices.DeleteFunc(missed, func(o bucket.Object) bool { return o.Name == merged })
	got, err := ReadIndex(t.Context(), &busyBucket{Bucket: w.bucket, stale: missed})
	if err != nil || len(got.Lines()[0].Segments) != len(x.Lines()[0].Segments) {
		t.Errorf("%v, %+v", err, got.Lines()[0].Segments)
	}
}

// TestAnotherStoreBeginsAnEpoch copies a second store to the bucket of the first: it does not go on where the first one ended.
func TestAnotherStoreBeginsAnEpoch(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(3, 4)))
	w.commit(20)
	w.step()
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	w.options.Dir = t.TempDir()
	w.open()
	for range 10 {
		w.commit(30)
	}
	w.step()
	x, err := ReadIndex(t.Context(), w.bucket)
	if err != nil || len(x.Epochs) != 2 {
		t.Fatalf("%+v, %v", x, err)
	}
	if _, got, err := w.restored(Target{}); err != nil || !slices.Equal(got, w.state(0)) {
		t.Errorf("%d keys, %v", len(got), err)
	}
}

// TestFaultsOfACopy checks that what is missing or wrong in a copy is found.
func TestFaultsOfACopy(t *testing.T) {
	for name, harm := range map[string]func(w *world, e *Epoch) error{
		"a segment is missing": func(w *world, e *Epoch) error { return w.bucket.Delete(w.t.Context(), e.Segments[1].Object.Name) },
		"a segment has the name of another": func(w *world, e *Epoch) error {
			return w.rewrite(e.Segments[1].Object.Name, func([]byte) []byte { return w.read(e.Segments[2].Object.Name) })
		},
		"a segment is cut off": func(w *world, e *Epoch) error {
			return w.rewrite(e.Segments[1].Object.Name, func(b []byte) []byte { return b[:len(b)-1] })
		},
		"a byte of an image is wrong": func(w *world, e *Epoch) error {
			return w.rewrite(e.Images[0].Name, func(b []byte) []byte {
				b[len(b)/2] ^= 1
				return b
			})
		},
		"there is no image": func(w *world, e *Epoch) error { return w.bucket.Delete(w.t.Context(), e.Images[0].Name) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rand.New(rand.NewPCG(5, 6)))
			w.step()
			for range 4 {
				if _, err := w.store.Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Put("/a", []byte("x"))}}); err != nil {
					t.Fatal(err)
				}
				if _, err := w.shipper.ship(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			last, err := w.store.Revision(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := w.restored(Target{Revision: last}); err != nil {
				t.Fatal(err)
			}
			x, err := ReadIndex(t.Context(), w.bucket)
			if err == nil {
				err = harm(w, x.Epochs[0])
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, target := range []Target{{Revision: last}, {}, {Time: w.time().Add(time.Hour)}} {
				if _, _, err := w.restored(target); err == nil {
					t.Errorf("%+v: nobody noticed", target)
				}
			}
		})
	}
}

// read returns the content of an object.
func (w *world) read(name string) []byte {
	w.t.Helper()
	in, err := w.bucket.Get(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	defer in.Close()
	b, err := io.ReadAll(in)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// rewrite changes the content of an object.
func (w *world) rewrite(name string, change func([]byte) []byte) error {
	b := change(bytes.Clone(w.read(name)))
	return w.bucket.Put(w.t.Context(), name, func(out io.Writer) error {
		_, err := out.Write(b)
		return err
	})
}

func TestEncryptedCopiesNeedAKey(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(7, 8)))
	for w.keys == nil {
		w = newWorld(t, w.rng)
	}
	w.commit(5)
	w.step()
	w.keys = nil
	if _, _, err := w.restored(Target{}); !errors.Is(err, backup.ErrEncrypted) {
		t.Errorf("%v", err)
	}
}

// TestLostChangesBeginAnEpoch compacts changes before they are copied.
func TestLostChangesBeginAnEpoch(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(9, 10)))
	w.step()
	for range 5 {
		w.commit(20)
	}
	last, err := w.store.Revision(t.Context())
	if err == nil {
		err = w.store.Compact(t.Context(), last)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.step()
	x, err := ReadIndex(t.Context(), w.bucket)
	if err != nil || len(x.Epochs) != 2 {
		t.Fatalf("%+v, %v", x, err)
	}
	if revision, got, err := w.restored(Target{}); err != nil || revision != last || !slices.Equal(got, w.state(0)) {
		t.Errorf("revision %d, %d keys, %v", revision, len(got), err)
	}
}

// TestImageAheadOfTheSegments writes an image with changes that are in no segment, as a process may that is killed then. The next
// process writes them too.
func TestImageAheadOfTheSegments(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(11, 12)))
	w.step()
	for range 5 {
		w.commit(20)
	}
	if _, err := w.shipper.writeImage(t.Context(), w.shipper.line); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.step()
	last, err := w.store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if revision, got, err := w.restored(Target{Revision: last - 1}); err != nil || revision != last-1 || !slices.Equal(got, w.state(last-1)) {
		t.Errorf("revision %d, %d keys, %v", revision, len(got), err)
	}
}

// TestLongOutage lets the copy wait for much longer than the history window, as when the bucket fails: it goes on without a hole.
func TestLongOutage(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(3, 4)))
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	w.options.HistoryWindow, w.options.CompactInterval, w.options.Hold = time.Minute, time.Millisecond, true
	w.open()
	w.commit(10)
	w.step()
	before := w.shipper.position
	for range 30 {
		w.pass(5 * time.Minute)
		w.commit(3)
	}
	wait.Until(t, "the history to be compacted up to what the copy has", func() bool { return w.store.Stats().CompactedRevision >= before })
	w.step()
	last, err := w.store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x, err := ReadIndex(t.Context(), w.bucket)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(x.Epochs); n != 1 {
		t.Errorf("%d epochs: the copy has begun again", n)
	}
	if _, _, err := w.restored(Target{Revision: before + (last-before)/2}); err != nil {
		t.Errorf("a moment of the outage: %v", err)
	}
}
