package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

// syncGateFS is a file system that blocks the syncs of the write-ahead log while it is shut. If set is called with
// an error, the syncs fail with it.
type syncGateFS struct {
	vfs.FS
	mu      sync.Mutex
	changed *sync.Cond
	shut    bool
	err     error
	waiting int // number of blocked syncs
	syncs   atomic.Int64
}

func newSyncGateFS(fs vfs.FS) *syncGateFS {
	g := &syncGateFS{FS: fs}
	g.changed = sync.NewCond(&g.mu)
	return g
}

func (g *syncGateFS) set(shut bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.err = shut, err
	g.changed.Broadcast()
}

// isShut reports whether syncs are blocked. If they are, no sync of the log can end at this moment.
func (g *syncGateFS) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// waitForSync waits until a sync is blocked.
func (g *syncGateFS) waitForSync(t *testing.T) {
	t.Helper()
	for range 10_000 {
		g.mu.Lock()
		waiting := g.waiting
		g.mu.Unlock()
		if waiting > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("no sync was asked for")
}

func (g *syncGateFS) pass() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting++
	g.changed.Broadcast()
	for g.shut {
		g.changed.Wait()
	}
	g.waiting--
	g.syncs.Add(1)
	return g.err
}

func (g *syncGateFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return &syncGateFile{File: f, gate: g}, nil
}

func (g *syncGateFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.FS.Create(name, category)
	return g.wrap(name, f, err)
}

func (g *syncGateFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.FS.ReuseForWrite(oldname, newname, category)
	return g.wrap(newname, f, err)
}

func (g *syncGateFS) Unwrap() vfs.FS { return g.FS }

type syncGateFile struct {
	vfs.File
	gate *syncGateFS
}

func (f *syncGateFile) Sync() error {
	if err := f.gate.pass(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *syncGateFile) SyncData() error {
	if err := f.gate.pass(); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f *syncGateFile) SyncTo(int64) (bool, error) { return false, nil }

func put(key, value string) storage.Txn {
	return storage.Txn{Ops: []storage.Op{storage.Put(key, []byte(value))}}
}

// TestNothingVisibleBeforeSync blocks the sync of a commit and checks that no method shows the commit meanwhile.
func TestNothingVisibleBeforeSync(t *testing.T) {
	gate := newSyncGateFS(vfs.NewMem())
	s := mustOpen(t, Options{FS: gate, Dir: "d"})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	r0, err := s.Commit(ctx, put("/before", "0"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Watch(ctx, "/", 0)
	if err != nil {
		t.Fatal(err)
	}

	gate.set(true, nil)
	var wg sync.WaitGroup
	commit := func(txn storage.Txn, check func(int64, error)) {
		wg.Go(func() {
			r, err := s.Commit(ctx, txn)
			if gate.isShut() {
				t.Errorf("Commit of %+v returned %d, %v before its sync", txn, r, err)
			}
			check(r, err)
		})
	}
	fine := func(r int64, err error) {
		if err != nil || r <= r0 {
			t.Errorf("Commit: %d, %v", r, err)
		}
	}
	commit(put("/a", "1"), fine)
	gate.waitForSync(t)
	// A conflict with durable state is answered while the sync is blocked.
	var conflict *storage.ConflictError
	_, err = s.Commit(ctx, storage.Txn{Conditions: []storage.Condition{{Key: "/before"}}})
	if !errors.As(err, &conflict) || conflict.Current.ModRevision != r0 || conflict.Revision != r0 {
		t.Errorf("conflict with durable state: %v", err)
	}
	// A transaction that has read the pending put must wait for its sync, whether the transaction succeeds or not.
	commit(storage.Txn{Conditions: []storage.Condition{{Key: "/a"}}, Ops: put("/b", "1").Ops}, func(_ int64, err error) {
		var conflict *storage.ConflictError
		if !errors.As(err, &conflict) || conflict.Current.ModRevision != r0+1 || conflict.Revision < r0+1 {
			t.Errorf("conflict with a pending put: %v", err)
		}
	})
	commit(storage.Txn{Conditions: []storage.Condition{{Key: "/a", ModRevision: r0 + 1}}}, fine)
	for i := range 20 {
		commit(put(fmt.Sprintf("/more/%d", i), "1"), fine)
	}
	wg.Go(func() {
		if _, err := w.Next(ctx); err != nil || gate.isShut() {
			t.Errorf("Next returned before the sync, or failed: %v", err)
		}
	})
	for range 50 {
		if e, at, err := s.Get(ctx, "/a", 0); err != nil || e.ModRevision != 0 || at != r0 {
			t.Errorf("Get shows what is not durable: %+v at %d, %v", e, at, err)
		}
		if r, err := s.Range(ctx, storage.RangeRequest{}); err != nil || r.Count != 1 || r.Revision != r0 {
			t.Errorf("Range shows what is not durable: %+v, %v", r, err)
		}
		if r, err := s.Revision(ctx); err != nil || r != r0 {
			t.Errorf("Revision %d, %v; durable is %d", r, err, r0)
		}
		var future *storage.FutureRevisionError
		if _, _, err := s.Get(ctx, "/a", r0+1); !errors.As(err, &future) {
			t.Errorf("Get at a revision that is not durable: %v", err)
		}
		time.Sleep(time.Millisecond) // time in which a wrong answer would arrive
	}
	gate.set(false, nil)
	wg.Wait()
	if e, _, err := s.Get(ctx, "/a", 0); err != nil || e.ModRevision != r0+1 {
		t.Errorf("after the sync: %+v, %v", e, err)
	}
}

// TestSyncOrder runs many commits and checks that each one returned after a sync that began after its call.
func TestSyncOrder(t *testing.T) {
	gate := newSyncGateFS(vfs.NewMem())
	s := mustOpen(t, Options{FS: gate, Dir: "d"})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := range 50 {
				before := gate.syncs.Load()
				if _, err := s.Commit(t.Context(), put(fmt.Sprintf("/%d/%d", i, n), "v")); err != nil {
					t.Error(err)
				}
				if gate.syncs.Load() == before {
					t.Error("a commit returned, but nothing was synced since it was asked for")
				}
			}
		})
	}
	wg.Wait()
}

// TestNewDirectoriesAreDurable checks that the directories of a new store survive a power cut together with its
// contents.
func TestNewDirectoriesAreDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, Options{FS: mem, Dir: "/srv/new/data/store"})
	if _, err := s.Commit(t.Context(), put("/a", "1")); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, Options{FS: mem.CrashClone(vfs.CrashCloneCfg{}), Dir: "/srv/new/data/store"})
	if e, _, err := again.Get(t.Context(), "/a", 0); err != nil || e.ModRevision == 0 {
		t.Errorf("after a crash: %+v, %v", e, err)
	}
}

// TestFailedSync lets a sync fail and checks that no commit in flight is acknowledged, that no later one is accepted,
// and that reads continue at the last durable revision.
func TestFailedSync(t *testing.T) {
	mem := vfs.NewCrashableMem()
	gate := newSyncGateFS(mem)
	failures := make(chan error, 10)
	s, err := Open(testOptions(Options{FS: gate, Dir: "d", OnFailure: func(err error) { failures <- err }}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	r0, err := s.Commit(ctx, put("/a", "durable"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Watch(ctx, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	gate.set(true, nil)
	var wg sync.WaitGroup
	lost := func(txn storage.Txn) {
		wg.Go(func() {
			if r, err := s.Commit(ctx, txn); !errors.Is(err, storage.ErrFailed) {
				t.Errorf("Commit of %+v: %d, %v; want ErrFailed", txn, r, err)
			}
		})
	}
	lost(put("/a", "lost"))
	gate.waitForSync(t)
	lost(put("/b", "lost"))
	// a conflict, if the first commit were durable
	lost(storage.Txn{Conditions: []storage.Condition{{Key: "/a", ModRevision: r0}}})
	// this would succeed if the first commit were durable
	lost(storage.Txn{Conditions: []storage.Condition{{Key: "/a", ModRevision: r0 + 1}}})
	// With this pause both groups are usually in flight.
	time.Sleep(10 * time.Millisecond)
	gate.set(false, errors.New("input/output error"))
	wg.Wait()
	gate.set(false, nil) // the store stays failed although syncs succeed again
	for range 3 {
		if _, err := s.Commit(ctx, put("/c", "late")); !errors.Is(err, storage.ErrFailed) {
			t.Errorf("Commit after the failure: %v", err)
		}
	}
	if e, at, err := s.Get(ctx, "/a", 0); err != nil || string(e.Value) != "durable" || at != r0 {
		t.Errorf("Get after the failure: %+v at %d, %v", e, at, err)
	}
	expired, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if b, err := w.Next(expired); err == nil {
		t.Errorf("a watcher saw %+v", b)
	}
	if err := receive(t, "the failure is told", failures); !errors.Is(err, storage.ErrFailed) ||
		!strings.Contains(err.Error(), "input/output error") {
		t.Errorf("OnFailure got %v", err)
	}
	if len(failures) != 0 {
		t.Error("OnFailure was called again")
	}
	s.Close() //nolint:errcheck // it repeats the failure
	if _, err := w.Next(ctx); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Next after Close: %v", err)
	}
	// The acknowledged change is on the disk.
	again := mustOpen(t, Options{FS: mem.CrashClone(vfs.CrashCloneCfg{}), Dir: "d"})
	if e, _, err := again.Get(ctx, "/a", r0); err != nil || string(e.Value) != "durable" {
		t.Errorf("after reopening: %+v, %v", e, err)
	}
}
