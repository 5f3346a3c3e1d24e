package copies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// TestTakeOvers lets one server after another take over from the one before, which is killed with changes that are not copied, or ends
// in order. Each goes on from the copy, above all revisions of the one before, and every moment of each can be restored.
func TestTakeOvers(t *testing.T) {
	for range effort.Rounds(10, 4) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, rand.New(rand.NewPCG(seed, 3)))
			w.step()
			type moment struct {
				at    time.Time
				state []string
			}
			var moments []moment
			for i := range 4 {
				f := &Follower{
					Bucket: w.bucket, Identities: w.keys, Work: t.TempDir(), Store: w.options,
				}
				f.Store.Dir = filepath.Join(t.TempDir(), "store")
				for range 5 {
					w.pass(time.Second)
					w.commit(9)
					w.step()
					moments = append(moments, moment{w.time(), w.state(0)})
					if err := f.Step(t.Context()); err != nil {
						t.Fatal(err)
					}
					if f.Position().Revision != w.shipper.position {
						t.Fatalf("the follower is at %d, the copy at %d", f.Position().Revision, w.shipper.position)
					}
				}
				copied := w.state(0)
				ended := w.rng.IntN(2) == 0
				if !ended {
					w.commit(9)
				}
				last, err := w.store.Revision(t.Context())
				if err == nil && ended {
					err = w.shipper.Finish(t.Context())
				}
				if err = errors.Join(err, w.store.Close()); err != nil {
					t.Fatal(err)
				}
				lock := w.lock(fmt.Sprint("server ", i))
				var held *HeldError
				h, err := f.TakeOver(t.Context(), lock)
				if !ended {
					if !errors.As(err, &held) {
						t.Fatalf("the lock is held: %v", err)
					}
					w.pass(67 * time.Second)
					h, err = f.TakeOver(t.Context(), lock)
				}
				if err != nil {
					t.Fatal(err)
				}
				w.options.Dir, w.options.MinRevision = f.Store.Dir, h.Next
				w.open()
				w.shipper.Handover, w.shipper.Lock, w.shipper.writer.lock = h, lock, lock
				if r, err := w.store.Revision(t.Context()); err != nil || r <= last {
					t.Errorf("the server that took over is at revision %d, %v; the one before was at %d", r, err, last)
				}
				if got := w.state(0); !slices.Equal(got, copied) {
					t.Errorf("%d keys after the takeover, %d were copied", len(got), len(copied))
				}
				w.step()
			}
			for _, m := range moments {
				if _, got, err := w.restored(Target{Time: m.at}); err != nil || !slices.Equal(got, m.state) {
					t.Errorf("%v: %d keys, want %d, %v", m.at, len(got), len(m.state), err)
				}
			}
			if _, got, err := w.restored(Target{}); err != nil || !slices.Equal(got, w.state(0)) {
				t.Errorf("the end: %d keys, %v", len(got), err)
			}
		})
	}
}

// TestConfirm checks that a change is answered and seen only when it is in the copy, and not while the lock may be another server's.
func TestConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		place, closeBucket, err := bucket.OpenDirectory(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer closeBucket()
		var failing atomic.Bool
		b := &faulty{place, func() (bool, bool) { return failing.Load(), false }}
		var s *Shipper
		store, err := embedded.Open(embedded.Options{
			Dir: t.TempDir(), ReserveBytes: -1, Logger: slog.New(slog.DiscardHandler),
			Confirm: func(ctx context.Context, revision int64) error { return s.Confirm(ctx, revision) },
		})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s, err = NewShipper(Options{
			Store: store, Bucket: b, Interval: time.Second, Retention: time.Hour, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Lock: &Lock{Bucket: b, Holder: "me", Time: 10 * time.Second, Since: func() time.Duration { return time.Since(began) }},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx)
		}()
		commit := func(value string) chan int64 {
			done := make(chan int64, 1)
			go func() {
				revision, err := store.Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Put("/a", []byte(value))}})
				if err != nil {
					t.Error(err)
				}
				done <- revision
			}()
			return done
		}
		revision := <-commit("1")
		if got := s.Status().Revision; got < revision {
			t.Errorf("revision %d was answered while the copy was at %d", revision, got)
		}
		failing.Store(true)
		time.Sleep(30 * time.Second)
		done := commit("2")
		time.Sleep(time.Minute)
		select {
		case r := <-done:
			t.Errorf("revision %d was answered while the bucket failed", r)
		default:
		}
		if e, _, err := store.Get(t.Context(), "/a", 0); err != nil || string(e.Value) != "1" {
			t.Errorf("a change that is not in the copy is seen: %s, %v", e.Value, err)
		}
		failing.Store(false)
		revision = <-done
		if got := s.Status().Revision; got < revision {
			t.Errorf("revision %d was answered while the copy was at %d", revision, got)
		}
		cancel()
		<-ended
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}
