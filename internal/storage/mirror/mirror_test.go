package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/copies"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
	"github.com/keelson-dev/keelson/internal/storage/memoryetcd/etcdtest"
)

// root is the beginning of the keys of API objects.
const root = etcd.DefaultPrefix + "/"

var quiet = slog.New(slog.DiscardHandler)

func connect(t *testing.T, url string) *etcd.Store {
	t.Helper()
	s, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{url}, CompactionInterval: -1, Records: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// place opens a bucket in a directory until the test ends.
func place(t *testing.T, dir string) bucket.Bucket {
	t.Helper()
	b, closeBucket, err := bucket.OpenDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeBucket() })
	return b
}

// server is a server on the cluster that writes the copy if it gets the lock.
type server struct {
	mirror  *Mirror
	shipper *copies.Shipper
	stop    context.CancelFunc
	ended   chan struct{}
}

func startServer(t *testing.T, name string, source *etcd.Store, to string, recipients ...age.Recipient) *server {
	t.Helper()
	return startServerOn(t, name, source, place(t, to), to, recipients...)
}

func startServerOn(t *testing.T, name string, source *etcd.Store, b bucket.Bucket, to string, recipients ...age.Recipient) *server {
	t.Helper()
	dir := t.TempDir()
	m := open(source, dir, b)
	identity, err := source.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shipper, err := copies.NewShipper(copies.Options{
		Store: m, Bucket: b, Interval: 20 * time.Millisecond, Retention: time.Hour, Recipients: recipients, Now: time.Now, Log: quiet,
		Record: filepath.Join(dir, "copy.json"), To: to,
		Lock: &copies.Lock{
			Bucket: b, Holder: name, Name: name, Source: identity, Time: 500 * time.Millisecond, Since: copies.SinceBoot,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &server{m, shipper, cancel, make(chan struct{})}
	go func() {
		shipper.Run(ctx)
		close(s.ended)
	}()
	t.Cleanup(s.kill)
	return s
}

// open starts a mirror in a directory.
func open(source *etcd.Store, dir string, b bucket.Bucket) *Mirror {
	return Open(Options{
		Source: source, Bucket: b, Now: time.Now, Log: quiet,
		Store: embedded.Options{Dir: filepath.Join(dir, "store"), Hold: true, ReserveBytes: -1, Logger: quiet},
	})
}

// kill ends the server. It keeps the lock.
func (s *server) kill() {
	s.stop()
	<-s.ended
	_ = s.mirror.Close()
}

// end stops the server, as a server that is stopped does.
func (s *server) end(t *testing.T) {
	t.Helper()
	s.stop()
	<-s.ended
	if err := errors.Join(s.shipper.Finish(t.Context()), s.mirror.Close()); err != nil {
		t.Fatal(err)
	}
}

func (s *server) await(t *testing.T, revision int64) {
	t.Helper()
	wait.Seen(t, "the copy", func() (bool, string) {
		status := s.shipper.Status()
		return status.Revision >= revision, fmt.Sprintf("%+v, wanted %d", status, revision)
	})
}

// awaitOther waits until the server knows that another one writes the copy, which is no error.
func (s *server) awaitOther(t *testing.T) {
	t.Helper()
	wait.Until(t, "another server writes the copy", func() bool { return s.shipper.Status().Other != "" })
	if err := s.shipper.Status().Err; err != nil {
		t.Error(err)
	}
}

// lines returns the number of lines of history that a copy has.
func lines(t *testing.T, b bucket.Bucket) int {
	t.Helper()
	x, err := copies.ReadIndex(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return len(x.Lines())
}

// cut is a bucket that cannot be reached while it is cut off.
type cut struct {
	bucket.Bucket
	off atomic.Bool
}

var errCut = errors.New("the bucket cannot be reached")

func (c *cut) Load(ctx context.Context, name string) ([]byte, string, error) {
	if c.off.Load() {
		return nil, "", errCut
	}
	return c.Bucket.Load(ctx, name)
}

func (c *cut) Swap(ctx context.Context, name string, content []byte, tag string) (string, error) {
	if c.off.Load() {
		return "", errCut
	}
	return c.Bucket.Swap(ctx, name, content, tag)
}

func (c *cut) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if c.off.Load() {
		return errCut
	}
	return c.Bucket.Put(ctx, name, write)
}

// TestServerThatWasCutOff checks that a server that gets the lock back goes on in what another server has written meanwhile.
func TestServerThatWasCutOff(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	url, to := etcdtest.Serve(t), filepath.Join(t.TempDir(), "bucket")
	source, way := connect(t, url), &cut{Bucket: place(t, to)}
	a := startServerOn(t, "a", source, way, to)
	a.await(t, write(t, rng, source, 20))
	b := startServer(t, "b", source, to)
	b.awaitOther(t)
	way.off.Store(true)
	b.await(t, write(t, rng, source, 20))
	way.off.Store(false)
	a.awaitOther(t)
	b.end(t)
	last := write(t, rng, source, 20)
	wait.Until(t, "the server has the lock again", func() bool { return a.shipper.Status().Other == "" })
	a.await(t, last)
	a.end(t)
	if n := lines(t, way); n != 1 {
		t.Errorf("the copy has %d lines of history", n)
	}
	if got, want := restored(t, way, copies.Target{}), keys(t, source); !maps.Equal(got, want) {
		t.Errorf("the copy has %v, not %v", got, want)
	}
}

// TestCopyThatIsAnImage checks that another server goes on in a copy that has an image and no changes after it.
func TestCopyThatIsAnImage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	url, to := etcdtest.Serve(t), filepath.Join(t.TempDir(), "bucket")
	source := connect(t, url)
	last := write(t, rng, source, 20)
	for _, name := range []string{"a", "b", "c"} {
		s := startServer(t, name, source, to)
		s.await(t, last)
		s.end(t)
	}
	if n := lines(t, place(t, to)); n != 1 {
		t.Errorf("the copy has %d lines of history", n)
	}
}

// twin follows the cluster and knows its state at each revision.
type twin struct {
	mu     sync.Mutex
	states map[int64]map[string]string
	last   int64
}

func (w *twin) follow(ctx context.Context, s *etcd.Store) error {
	watcher, err := s.Watch(ctx, root, 2)
	if err != nil {
		return err
	}
	defer watcher.Close()
	state := map[string]string{}
	for {
		b, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		w.mu.Lock()
		for i, e := range b.Events {
			if state[e.Entry.Key] = string(e.Entry.Value); e.Deleted {
				delete(state, e.Entry.Key)
			}
			if r := e.Entry.ModRevision; i+1 == len(b.Events) || b.Events[i+1].Entry.ModRevision != r {
				w.states[r], w.last = maps.Clone(state), r
			}
		}
		w.mu.Unlock()
	}
}

// at returns the state at a revision, which may be one without a change.
func (w *twin) at(revision int64) map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; revision > 0; revision-- {
		if s := w.states[revision]; s != nil {
			return s
		}
	}
	return nil
}

func (w *twin) reached() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// write makes random changes and returns the revision of the last one.
func write(t *testing.T, rng *rand.Rand, s *etcd.Store, n int) (revision int64) {
	t.Helper()
	for range n {
		txn := storage.Txn{By: []byte("somebody")}
		for _, k := range rng.Perm(20)[:1+rng.IntN(3)] {
			key := fmt.Sprintf("%sthings/%d", root, k)
			switch rng.IntN(4) {
			case 0:
				txn.Ops = append(txn.Ops, storage.Delete(key))
			case 1:
				op := storage.Put(key, fmt.Appendf(nil, "for an hour %d", rng.Int()))
				op.TTL = 3600
				txn.Ops = append(txn.Ops, op)
			default:
				txn.Ops = append(txn.Ops, storage.Put(key, fmt.Append(nil, rng.Int())))
			}
		}
		var err error
		if revision, err = s.Commit(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
	}
	return revision
}

// restored returns the keys in the copy at a revision, and checks their deadlines.
func restored(t *testing.T, b bucket.Bucket, target copies.Target) map[string]string {
	t.Helper()
	x, err := copies.ReadIndex(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	p, err := x.Plan(target)
	if err != nil {
		t.Fatal(err)
	}
	o := embedded.Options{Dir: filepath.Join(t.TempDir(), "store"), ReserveBytes: -1, Logger: quiet}
	if _, err := p.Restore(t.Context(), b, o, t.TempDir(), nil); err != nil {
		t.Fatal(err)
	}
	r, err := embedded.OpenReader(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	e, err := r.Export()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	keys := map[string]string{}
	for record, err := range e.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		keys[record.Key] = string(record.Value)
		left := time.Until(time.UnixMilli(record.Deadline))
		switch limited := strings.HasPrefix(string(record.Value), "for an hour"); {
		case !limited && record.Deadline != 0:
			t.Errorf("%s expires in %v", record.Key, left)
		case limited && (left < 50*time.Minute || left > 70*time.Minute):
			t.Errorf("%s should expire in an hour, not in %v", record.Key, left)
		}
	}
	return keys
}

// TestServersTakeTurns checks that one of several servers on a cluster writes the copy, that another one goes on when it is killed or
// stopped, without a hole, and that each state can be restored.
func TestServersTakeTurns(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	url, to := etcdtest.Serve(t), filepath.Join(t.TempDir(), "bucket")
	source := connect(t, url)
	w := &twin{states: map[int64]map[string]string{}}
	following, cancel := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() { followed <- w.follow(following, connect(t, url)) }()
	first := write(t, rng, source, 20)
	writer := startServer(t, "server 0", source, to)
	writer.await(t, first)
	for i := 1; i <= effort.Rounds(40, 4); i++ {
		next := startServer(t, fmt.Sprintf("server %d", i), connect(t, url), to)
		next.awaitOther(t)
		write(t, rng, source, 1+rng.IntN(50))
		if rng.IntN(2) == 0 {
			writer.kill()
		} else {
			writer.end(t)
		}
		next.await(t, write(t, rng, source, 1+rng.IntN(50)))
		writer = next
	}
	last := write(t, rng, source, 10)
	writer.await(t, last)
	writer.end(t)
	wait.Until(t, "the twin has all changes", func() bool { return w.reached() >= last })
	cancel()
	if err := <-followed; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	b := place(t, to)
	if n := lines(t, b); n != 1 {
		t.Errorf("the copy has %d lines of history", n)
	}
	for range effort.Rounds(50, 10) {
		revision := first + rng.Int64N(last-first+1)
		if got, want := restored(t, b, copies.Target{Revision: revision}), w.at(revision); !maps.Equal(got, want) {
			t.Errorf("revision %d has %v, not %v", revision, got, want)
		}
	}
}

// TestMissingChanges checks that a copy begins anew when the cluster does not have the changes since its end.
func TestMissingChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	url, to := etcdtest.Serve(t), filepath.Join(t.TempDir(), "bucket")
	source := connect(t, url)
	s := startServer(t, "a", source, to)
	s.await(t, write(t, rng, source, 20))
	s.end(t)
	revision := write(t, rng, source, 20)
	if err := source.Compact(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	s = startServer(t, "b", source, to)
	s.await(t, write(t, rng, source, 5))
	s.end(t)
	b := place(t, to)
	if n := lines(t, b); n != 2 {
		t.Errorf("the copy has %d lines of history", n)
	}
	if got, want := restored(t, b, copies.Target{}), keys(t, source); !maps.Equal(got, want) {
		t.Errorf("the copy has %v, not %v", got, want)
	}
}

// keys returns what is in the cluster.
func keys(t *testing.T, s *etcd.Store) map[string]string {
	t.Helper()
	r, err := s.Range(t.Context(), storage.RangeRequest{Start: root, End: storage.PrefixEnd(root)})
	if err != nil {
		t.Fatal(err)
	}
	state := map[string]string{}
	for e := range slices.Values(r.Entries) {
		if !strings.HasPrefix(e.Key, root+".keelson/") { // where etcd.Store has who has made a change
			state[e.Key] = string(e.Value)
		}
	}
	return state
}

// TestChangesOfOtherData checks that a copy whose end the cluster does not have is not continued, although the revisions would allow it.
func TestChangesOfOtherData(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	to := filepath.Join(t.TempDir(), "bucket")
	source, other := connect(t, etcdtest.Serve(t)), connect(t, etcdtest.Serve(t))
	s := startServer(t, "a", source, to)
	s.await(t, write(t, rng, source, 20))
	s.end(t)
	write(t, rng, other, 40)
	s = startServer(t, "b", other, to) // both clusters in memory have the same identity
	s.await(t, write(t, rng, other, 5))
	s.end(t)
	if got, want := restored(t, place(t, to), copies.Target{}), keys(t, other); !maps.Equal(got, want) {
		t.Errorf("the copy has %v, not %v", got, want)
	}
}

// TestCopyOfAnotherCluster checks that the copy of another cluster is not written to.
func TestCopyOfAnotherCluster(t *testing.T) {
	b := place(t, filepath.Join(t.TempDir(), "bucket"))
	lock := func(source string) *copies.Lock {
		return &copies.Lock{Bucket: b, Holder: source, Name: source, Source: source, Time: time.Minute, Since: copies.SinceBoot}
	}
	first := lock("etcd cluster 1, /registry")
	if err := errors.Join(first.Acquire(t.Context(), 0), first.Release(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"", "etcd cluster 2, /registry", "etcd cluster 1, /other"} {
		err := lock(source).Acquire(t.Context(), 0)
		if refused := (*copies.SourceError)(nil); !errors.As(err, &refused) || refused.Has != first.Source {
			t.Errorf("%q: %v", source, err)
		}
	}
	if err := lock(first.Source).Acquire(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// TestEncryptedCopy checks that a server that cannot read the copy goes on in it if it has all changes since its end, and else begins it
// anew.
func TestEncryptedCopy(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	url, to := etcdtest.Serve(t), filepath.Join(t.TempDir(), "bucket")
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	source := connect(t, url)
	for i, want := range []int{1, 1, 2} {
		if i == 2 {
			write(t, rng, source, 1) // while there is no server
		}
		s := startServer(t, "a", source, to, key.Recipient())
		if err := s.mirror.Await(t.Context()); err != nil { // it is made before anything is written
			t.Fatal(err)
		}
		s.await(t, write(t, rng, source, 20))
		s.end(t)
		if got := lines(t, place(t, to)); got != want {
			t.Errorf("after server %d the copy has %d lines of history, not %d", i, got, want)
		}
	}
}
