package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

func put(key, value string) storage.Txn {
	return storage.Txn{Ops: []storage.Op{storage.Put(key, []byte(value))}}
}

// TestWatchThroughRestarts watches keys that are written while members stop and start again. The watch must deliver
// each change of each key once, in order, and with the previous value.
func TestWatchThroughRestarts(t *testing.T) {
	t.Parallel()
	c := start(t, 3, nil)
	writing, watching := c.open(t, etcd.Options{}), c.open(t, etcd.Options{})
	const writers, keys = 4, 5
	from, err := watching.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := watching.Watch(t.Context(), "/w/", from+1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()

	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	acknowledged := map[int64]string{} // by revision
	for i := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key, value := fmt.Sprintf("/w/%d", rng.IntN(keys)), fmt.Sprintf("%d-%d", i, n)
				txn := put(key, value)
				if rng.IntN(5) == 0 {
					txn.Ops[0], value = storage.Delete(key), ""
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				r, err := writing.Commit(ctx, txn)
				cancel()
				if err != nil || txn.Ops[0].Delete {
					continue // the outcome is unknown, or nothing was changed
				}
				mu.Lock()
				acknowledged[r] = key + "=" + value
				mu.Unlock()
			}
		})
	}
	rounds := 2
	if long() {
		rounds = 20
	}
	go func() {
		defer close(stop)
		for n := range rounds {
			time.Sleep(200 * time.Millisecond)
			i, err := n%3, error(nil)
			if n%2 == 0 {
				i, err = c.findLeader()
			}
			if err == nil {
				c.stop(i)
				time.Sleep(200 * time.Millisecond)
				err = c.tryRestart(i)
			}
			if err != nil {
				t.Errorf("stop %d: %v", n, err)
				return
			}
		}
		time.Sleep(200 * time.Millisecond)
	}()

	var end int64
	state := map[string]storage.Entry{}
	last, seen := from, map[int64]string{}
	// A watcher that has delivered everything returns nothing more. The waiting code looks at the time and requests
	// progress again, because a progress request is lost when its stream ends.
	const look = 200 * time.Millisecond
	heard := time.Now()
	for end == 0 || last < end {
		select {
		case <-stop:
			if end == 0 {
				wg.Wait()
				within(t, "the revision is read", func() (err error) {
					end, err = watching.Revision(t.Context())
					return err
				})
			}
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), look)
		b, err := w.Next(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && time.Since(heard) < patience {
			_, _ = watching.Revision(t.Context()) // requests progress
			continue
		}
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		heard = time.Now()
		for _, e := range b.Events {
			r := e.Entry.ModRevision
			if r <= last {
				t.Fatalf("an event of revision %d after %d", r, last)
			}
			last = r
			if before := state[e.Entry.Key]; before.ModRevision != e.Prev.ModRevision ||
				string(before.Value) != string(e.Prev.Value) {
				t.Fatalf("%s at %d: the change before was %+v, the event says %+v", e.Entry.Key, r, before, e.Prev)
			}
			state[e.Entry.Key] = e.Entry
			if e.Deleted {
				delete(state, e.Entry.Key)
			}
			seen[r] = e.Entry.Key + "=" + string(e.Entry.Value)
		}
		if b.Revision < last {
			t.Fatalf("progress %d behind event %d", b.Revision, last)
		}
		last = b.Revision
		_, _ = watching.Revision(t.Context()) // requests progress
	}
	for r, want := range acknowledged {
		if got := seen[r]; got != want {
			t.Errorf("acknowledged at %d: %s; the watch says %q", r, want, got)
		}
	}
	r, err := watching.Range(t.Context(), storage.RangeRequest{Start: "/w/", End: "/w0"})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Entries) != len(state) {
		t.Errorf("the watch adds up to %d keys, there are %d", len(state), len(r.Entries))
	}
	for _, e := range r.Entries {
		if state[e.Key].ModRevision != e.ModRevision {
			t.Errorf("%s: the watch says %d, it is at %d", e.Key, state[e.Key].ModRevision, e.ModRevision)
		}
	}
	t.Logf("%d events, %d puts acknowledged", len(seen), len(acknowledged))
}

// TestRevisionIsConsistent checks that the revision that one store reads is not below that of a transaction which
// another store has committed before.
func TestRevisionIsConsistent(t *testing.T) {
	c := start(t, 3, nil)
	a, b := c.open(t, etcd.Options{}), c.open(t, etcd.Options{})
	tries := 400
	if long() {
		tries = 10_000
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience) // for the whole test
	defer cancel()
	w, err := b.Watch(ctx, "/k/", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	at := int64(0)
	for i := range tries {
		key := "/k/x"
		if i%3 == 0 {
			key = "/elsewhere" // not watched, so that only progress notifications advance the watch
		}
		r, err := a.Commit(ctx, put(key, strconv.Itoa(i)))
		if err != nil {
			t.Fatalf("commit %d: %v", i, err)
		}
		got, err := b.Revision(ctx)
		if err != nil || got < r {
			t.Fatalf("committed %d, the other store reads %d, %v", r, got, err)
		}
		for saw := false; at < got; {
			batch, err := w.Next(ctx)
			if err != nil {
				t.Fatalf("waiting for revision %d, at %d: %v", got, at, err)
			}
			at = batch.Revision
			for _, e := range batch.Events {
				saw = saw || e.Entry.ModRevision == r
			}
			if at >= r && i%3 != 0 && !saw {
				t.Fatalf("progress to %d before the event of %d", at, r)
			}
		}
	}
}

// TestNoQuorum checks that commits and consistent reads fail within a limited time, with an error that says that the
// cluster is the reason.
func TestNoQuorum(t *testing.T) {
	t.Parallel()
	c := start(t, 3, nil)
	s := c.open(t, etcd.Options{})
	c.stop(1)
	c.stop(2)
	check := func(op string, err error) {
		var e *etcd.Error
		if !errors.As(err, &e) || e.Status().Code != 503 && e.Status().Code != 504 || errors.Is(err, storage.ErrFailed) {
			t.Errorf("%s: %v", op, err)
		}
	}
	ctx, cancel := bounded(t)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := s.Commit(ctx, put("/a", ""))
		check("Commit", err)
	})
	wg.Go(func() {
		_, err := s.Revision(ctx)
		check("Revision", err)
	})
	wg.Go(func() {
		_, _, err := s.Get(ctx, "/a", 0)
		check("Get", err)
	})
	wg.Wait()
	c.restart(1)
	within(t, "commits work again", func() error {
		ctx, cancel := bounded(t)
		defer cancel()
		_, err := s.Commit(ctx, put("/a", ""))
		return err
	})
}

// TestTransactionsAreSentOnce checks that a transaction with an unknown outcome is not sent again. The second one
// would conflict with the first, and the caller would get the answer that nothing was changed.
func TestTransactionsAreSentOnce(t *testing.T) {
	t.Parallel()
	c := start(t, 3, nil)
	s := c.open(t, etcd.Options{})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var unknown atomic.Int64
	for i := range 16 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				txn := put(fmt.Sprintf("/once/%d/%d", i, n), "")
				txn.Conditions = []storage.Condition{{Key: txn.Ops[0].Key}}
				ctx, cancel := bounded(t)
				_, err := s.Commit(ctx, txn)
				cancel()
				var conflict *storage.ConflictError
				switch {
				case errors.As(err, &conflict):
					t.Errorf("created by nobody else: %v", err)
				case err != nil:
					unknown.Add(1)
					time.Sleep(50 * time.Millisecond)
				}
			}
		})
	}
	// The leader adds transactions to its log that it cannot commit until it steps down. They take effect when a
	// member is started again.
	leader := c.leader()
	c.stop((leader + 1) % 3)
	c.stop((leader + 2) % 3)
	time.Sleep(c.members[leader].running.Server.Cfg.ReqTimeout() + time.Second)
	c.restart((leader + 2) % 3)
	time.Sleep(time.Second)
	close(stop)
	wg.Wait()
	t.Logf("%d unknown", unknown.Load())
}

// TestNoSpace checks that a cluster above its quota refuses puts and carries out other requests.
func TestNoSpace(t *testing.T) {
	c := start(t, 1, func(config *embed.Config) { config.QuotaBackendBytes = 4 << 20 })
	s := c.open(t, etcd.Options{})
	big := make([]byte, 1<<20)
	var err error
	for i := 0; i < 200 && err == nil; i++ { // etcd notices its size only after a write
		_, err = s.Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Put(fmt.Sprintf("/big/%d", i), big)}})
	}
	if !errors.Is(err, storage.ErrNoSpace) {
		t.Fatalf("%v", err)
	}
	if r, err := s.Range(t.Context(), storage.RangeRequest{Start: "/big/", End: "/big0", CountOnly: true}); err != nil ||
		r.Count == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := s.Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Delete("/big/0")}}); err != nil {
		t.Errorf("a delete: %v", err)
	}
}

func TestTooLarge(t *testing.T) {
	s := start(t, 1, nil).open(t, etcd.Options{})
	for _, size := range []int{1600 << 10, 3 << 20, 5 << 20} { // above the limits of etcd and of gRPC
		_, err := s.Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Put("/big", make([]byte, size))}})
		if !errors.Is(err, storage.ErrTooLarge) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	var many storage.Txn
	for i := range 200 {
		many.Ops = append(many.Ops, storage.Put(fmt.Sprint("/many/", i), nil))
	}
	if _, err := s.Commit(t.Context(), many); !errors.Is(err, storage.ErrTooLarge) {
		t.Errorf("200 operations: %v", err)
	}
}

// TestCompactionIsShared checks that one of several stores compacts at each interval, up to the revision that was
// current one interval before, and that they agree by the key that kube-apiserver uses.
func TestCompactionIsShared(t *testing.T) {
	c := start(t, 1, nil)
	const interval = 300 * time.Millisecond
	var stores []*etcd.Store
	for range 3 {
		stores = append(stores, c.open(t, etcd.Options{CompactionInterval: interval}))
	}
	first, err := stores[0].Commit(t.Context(), put("/a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stores[0].Commit(t.Context(), put("/a", "2")); err != nil {
		t.Fatal(err)
	}
	var compacted *storage.CompactedError
	within(t, "the first revision is compacted", func() error {
		_, _, err := stores[0].Get(t.Context(), "/a", first)
		if errors.As(err, &compacted) {
			return nil
		}
		return fmt.Errorf("read at %d: %w", first, errors.Join(err, errors.New("still there")))
	})
	raw, err := clientv3.New(clientv3.Config{Endpoints: c.endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	key := func() (version, revision int64) {
		r, err := raw.Get(t.Context(), "compact_rev_key")
		if err != nil || len(r.Kvs) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		revision, err = strconv.ParseInt(string(r.Kvs[0].Value), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return r.Kvs[0].Version, revision
	}
	// A store whose interval has passed either compacts, or sees that another store has done so. So the key changes
	// once in an interval, not once for each store.
	began := time.Now()
	v1, r1 := key()
	v2, r2 := v1, r1
	within(t, "some turns are taken", func() error {
		if v2, r2 = key(); v2 < v1+5 {
			return fmt.Errorf("from turn %d to %d", v1, v2)
		}
		return nil
	})
	if turns, most := v2-v1, int64(time.Since(began)/interval)+3; turns > most {
		t.Errorf("%d turns where one store takes %d at most", turns, most)
	}
	if r2 <= r1 {
		t.Errorf("compacted to %d, then to %d", r1, r2)
	}
}
