package copies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// TestLockIsHeldByOne lets processes whose clocks run unequally fast acquire, renew, release and lose a lock at random, in a bucket in
// which requests fail before or after they take effect. At no time do two of them hold it, and each new holder has a higher epoch.
func TestLockIsHeldByOne(t *testing.T) {
	for range effort.Rounds(60, 15) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			place, closeBucket, err := bucket.OpenDirectory(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer closeBucket()
			faults := false
			b := &faulty{place, func() (bool, bool) { return faults && rng.IntN(4) == 0, faults && rng.IntN(4) == 0 }}
			var now time.Duration
			var locks []*Lock
			for i := range 3 {
				speed := 1 + float64(rng.IntN(80)-40)/1000 // up to 4 % faster or slower
				began := time.Duration(rng.IntN(1000)) * time.Hour
				locks = append(locks, &Lock{
					Bucket: b, Holder: fmt.Sprint(i), Time: 10 * time.Second,
					Since: func() time.Duration { return began + time.Duration(float64(now)*speed) },
				})
			}
			newest := int64(0)
			holds := make([]int64, len(locks))
			for range 300 {
				faults = rng.IntN(3) == 0
				now += time.Duration(rng.IntN(3000)) * time.Millisecond
				i := rng.IntN(len(locks))
				l := locks[i]
				var err error
				switch what := rng.IntN(10); {
				case l.Epoch() == 0:
					err = l.Acquire(t.Context(), 0)
				case what < 7:
					err = l.Renew(t.Context())
				case what < 8:
					err = l.Release(t.Context())
				case what < 9:
					err = l.Advance(t.Context())
				default: // the process is killed, and another one begins with the same machine's holder
					locks[i] = &Lock{Bucket: b, Holder: l.Holder + "'", Time: l.Time, Since: l.Since}
				}
				var held *HeldError
				if err != nil && !errors.Is(err, errFault) && !errors.Is(err, ErrLost) && !errors.As(err, &held) &&
					!errors.Is(err, bucket.ErrChanged) {
					t.Fatal(err)
				}
				var valid []int
				for i, l := range locks {
					if !l.Valid() {
						continue
					}
					valid = append(valid, i)
					if e := l.Epoch(); e != holds[i] {
						if e <= newest {
							t.Fatalf("process %d holds epoch %d after epoch %d", i, e, newest)
						}
						holds[i], newest = e, e
					}
				}
				if len(valid) > 1 {
					t.Fatalf("%v hold the lock at %v", valid, now)
				}
			}
		})
	}
}

// takeOver makes a second server with the state of the copy, which takes the lock from the first one while that is paused.
func (w *world) takeOver() (second *Shipper) {
	w.t.Helper()
	l := w.lock("other")
	x, err := ReadIndex(w.t.Context(), w.bucket)
	if err != nil {
		w.t.Fatal(err)
	}
	var held *HeldError
	if err := l.Acquire(w.t.Context(), x.Newest()); !errors.As(err, &held) || held.Name != "server me" {
		w.t.Fatalf("the lock is held, and Acquire returns %v", err)
	}
	w.pass(67 * time.Second)
	if err := l.Acquire(w.t.Context(), x.Newest()); err != nil {
		w.t.Fatal(err)
	}
	p, err := x.Plan(Target{})
	if err != nil {
		w.t.Fatal(err)
	}
	o := w.options
	o.Dir = w.t.TempDir()
	if _, err := p.Restore(w.t.Context(), w.bucket, o, w.t.TempDir(), w.keys); err != nil {
		w.t.Fatal(err)
	}
	store, err := embedded.Open(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { store.Close() })
	second, err = NewShipper(Options{
		Store: store, Bucket: w.bucket, Retention: 2 * time.Hour, Recipients: w.to, Now: func() time.Time { return w.time() },
		Log: slog.New(slog.DiscardHandler), Lock: l,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	second.writer.epoch.Store(l.Epoch())
	return second
}

// TestWriterThatWasPaused takes a copy over from a writer that then goes on: nothing that it writes is read.
func TestWriterThatWasPaused(t *testing.T) {
	put := func(s *Shipper, value string) error {
		_, err := s.Store.(*embedded.Store).Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Put("/who", []byte(value))}})
		return err
	}
	for seed := range uint64(effort.Rounds(20, 4)) {
		w := newWorld(t, rand.New(rand.NewPCG(13, seed)))
		w.commit(5)
		w.step()
		w.pass(time.Second)
		second := w.takeOver()
		end := w.shipper.position
		if err := put(second, "second"); err != nil {
			t.Fatal(err)
		}
		if err := second.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(second.line.Epochs, w.shipper.writer.epoch.Load()) {
			t.Errorf("the second server did not go on from the copy: %v", second.line.Epochs)
		}

		// The first one is refused as soon as it asks.
		if err := put(w.shipper, "first"); err != nil {
			t.Fatal(err)
		}
		if err := w.shipper.step(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("seed %d: a writer without the lock: %v", seed, err)
		}
		// Requests that it had sent before arrive late.
		w.shipper.Lock.valid.set(forever)
		w.shipper.line = &Line{Epochs: []int64{1}, Images: slices.Clone(second.line.Images)}
		w.shipper.writer.epoch.Store(1)
		for _, late := range []func() error{
			func() error { _, err := w.shipper.ship(t.Context()); return err },
			func() error { _, err := w.shipper.writeImage(t.Context(), w.shipper.line); return err },
		} {
			if err := late(); err != nil {
				t.Fatal(err)
			}
			for _, target := range []Target{{}, {Revision: end + 1}, {Time: w.time()}} {
				if got := w.who(target); got != "second" {
					t.Errorf("seed %d, %+v: restored the value of the %q server", seed, target, got)
				}
			}
		}
	}
}

// who returns the value of /who at a moment.
func (w *world) who(target Target) string {
	w.t.Helper()
	_, keys, err := w.restored(target)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, k := range keys {
		var key, value string
		var create, mod int64
		if _, err := fmt.Sscanf(k, "%s %d %d %s", &key, &create, &mod, &value); err == nil && key == "/who" {
			return value
		}
	}
	return ""
}

// TestForeignCopies checks that a data directory does not go on in a copy that has changes of others, until it was restored from it.
func TestForeignCopies(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(15, 16)))
	w.commit(9)
	w.step()
	if err := w.shipper.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	record := w.options.Dir + "/copy.json"
	w.options.Dir = t.TempDir()
	w.open()
	w.commit(9)
	w.shipper.Record = record
	if err := w.shipper.step(t.Context()); !errors.Is(err, ErrForeign) {
		t.Errorf("the copy of another store: %v", err)
	}
	x, err := ReadIndex(t.Context(), w.bucket)
	if err != nil {
		t.Fatal(err)
	}
	// It was restored, but another server has written since.
	if err := UpdateRecord(record, "", func(r *Record) { r.Epoch, r.Restored = x.Newest()-1, true }); err != nil {
		t.Fatal(err)
	}
	if err := w.shipper.step(t.Context()); !errors.Is(err, ErrForeign) {
		t.Errorf("restored before another server has written: %v", err)
	}
	if err := UpdateRecord(record, "", func(r *Record) { r.Epoch = x.Newest() }); err != nil {
		t.Fatal(err)
	}
	if err := w.shipper.Finish(t.Context()); err != nil {
		t.Errorf("after a restore: %v", err)
	}
}

// ignoring is a bucket that does not keep the conditions of writes.
type ignoring struct{ bucket.Bucket }

func (i ignoring) Swap(ctx context.Context, name string, content []byte, _ string) (string, error) {
	if _, tag, err := i.Load(ctx, name); err == nil {
		return i.Bucket.Swap(ctx, name, content, tag)
	}
	return i.Bucket.Swap(ctx, name, content, "")
}

// TestBucketWithoutConditions checks that a copy is kept there, but that a strict lock refuses it.
func TestBucketWithoutConditions(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(17, 18)))
	l := w.lock("me")
	l.Bucket = ignoring{w.bucket}
	if err := l.Acquire(t.Context(), 7); err != nil || l.Epoch() != 8 || !l.Valid() || l.Conditional() {
		t.Errorf("%v, epoch %d", err, l.Epoch())
	}
	w.pass(time.Hour)
	if err := l.Renew(t.Context()); err != nil || !l.Valid() {
		t.Error(err)
	}
	if err := l.Advance(t.Context()); err != nil || l.Epoch() != 9 {
		t.Errorf("%v, epoch %d", err, l.Epoch())
	}
	l = w.lock("me")
	l.Bucket, l.Strict = ignoring{w.bucket}, true
	if err := l.Acquire(t.Context(), 7); !errors.Is(err, bucket.ErrNoConditions) || l.Valid() {
		t.Errorf("a strict lock: %v", err)
	}
}

// TestNothingIsConfirmedWithoutTheLock checks that a change that is in the copy is not answered once the lock has ended: another server may
// have taken over before the change was written.
func TestNothingIsConfirmedWithoutTheLock(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(19, 20)))
	w.shipper.Lost = func(error) {}
	if err := w.shipper.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.commit(5)
	w.step()
	revision := w.shipper.position
	if err := errors.Join(w.shipper.Confirm(t.Context(), revision), w.shipper.AwaitLock(t.Context())); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Hour)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, confirm := range []func(context.Context) error{
		func(ctx context.Context) error { return w.shipper.Confirm(ctx, revision) }, w.shipper.AwaitLock,
	} {
		if err := confirm(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the lock has ended: %v", err)
		}
	}
	other := w.lock("other")
	for range 2 {
		_ = other.Acquire(t.Context(), 1) // the first time it sees the lock
		w.pass(2 * time.Minute)
	}
	if err := w.shipper.Lock.Renew(t.Context()); !errors.Is(err, ErrLost) {
		t.Fatalf("another server has the lock: %v", err)
	}
	for _, confirm := range []func(context.Context) error{
		func(ctx context.Context) error { return w.shipper.Confirm(ctx, revision) }, w.shipper.AwaitLock,
	} {
		if err := confirm(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("another server has the lock: %v", err)
		}
	}
}
