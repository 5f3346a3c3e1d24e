package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/test/rig"
)

// machine is a server in this process, on a file system in memory that can lose the data that was not synced.
type machine struct {
	t    *testing.T
	s    *rig.Scenario
	disk *vfs.MemFS

	// These fields may plant a fault: between the engine and the disk, between the server and the store, or between
	// the clients and the server.
	drive  func(vfs.FS) vfs.FS
	store  func(storage.Store) storage.Store
	around func(http.Handler) http.Handler
	cache  cache.Options
	// losesAll means that a power cut loses all data that was not synced, instead of a random part.
	losesAll bool

	engine         *embedded.Store
	served, honest *rig.Server
}

func newMachine(t *testing.T) *machine {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	m := &machine{
		t: t, s: rig.NewScenario(t, rig.Seeded(t), &http.Client{Transport: transport}), disk: vfs.NewCrashableMem(),
	}
	t.Cleanup(func() {
		m.stop()
		transport.CloseIdleConnections()
	})
	return m
}

// start opens the store and serves it.
func (m *machine) start() {
	m.t.Helper()
	var fs vfs.FS = m.disk
	if m.drive != nil {
		fs = m.drive(fs)
	}
	// The history must cover the longest interruption of a watch.
	engine, err := embedded.Open(options(embedded.Options{
		Dir: "data", FS: fs, HistoryWindow: time.Minute, CompactInterval: time.Second,
	}))
	if err != nil {
		m.t.Fatalf("the store does not open: %v", err)
	}
	m.engine = engine
	var store storage.Store = engine
	if m.store != nil {
		store = m.store(store)
	}
	if m.served, err = rig.Serve(rig.Options{Store: store, Cache: m.cache, Around: m.around}); err != nil {
		m.t.Fatal(err)
	}
	m.honest = m.served
	if m.store != nil || m.around != nil {
		if m.honest, err = rig.Serve(rig.Options{Store: engine}); err != nil {
			m.t.Fatal(err)
		}
	}
	m.s.At(m.honest.URL, m.served.URL)
}

// stop ends the server if it is running.
func (m *machine) stop() {
	if m.engine == nil {
		return
	}
	m.served.Close()
	if m.honest != m.served {
		m.honest.Close()
	}
	m.engine.Close() //nolint:errcheck // the store may have failed
	m.engine = nil
}

// round lets the clients work for a while, calls amid, and cuts the power.
func (m *machine) round(writers, readers int, life time.Duration, amid func(*rand.Rand)) {
	rng := rand.New(rand.NewPCG(m.s.Rng.Uint64(), 2))
	ctx, cancel := context.WithCancel(context.Background())
	var after *vfs.MemFS
	cutOff := make(chan struct{})
	time.AfterFunc(life, func() {
		if amid != nil {
			amid(rng)
		}
		m.s.Rec.Freeze(func() {
			if after = cut(rng, m.disk); m.losesAll {
				after = m.disk.CrashClone(vfs.CrashCloneCfg{})
			}
		})
		cancel()
		close(cutOff)
	})
	m.s.Load(ctx, writers, readers)
	<-cutOff
	m.stop()
	m.disk = after
	m.s.Rec.Settle()
	m.s.Rec.Thaw()
	m.start()
}

// TestPowerCutServer cuts the power of a server with clients: the disk keeps the synced data and a random part of the
// rest. The whole history is checked after each cut.
func TestPowerCutServer(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.s.Begin(true)
	for m.s.Round = range rig.Rounds(12, 2000) {
		m.round(4, 2, time.Duration(m.s.Rng.Int64N(int64(100*time.Millisecond))), nil)
		if err := m.s.Check(); err != nil {
			t.Fatalf("round %d: %v", m.s.Round, err)
		}
	}
	m.s.Round++
	if err := m.s.End(); err != nil {
		t.Fatal(err)
	}
}

// syncing reports whether a file operation makes data durable.
func syncing(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
}

// TestFailedSync makes the syncs of the log fail from a random moment on, and cuts the power some time later. Every
// write that was acknowledged until then must be there, also those acknowledged after the failure.
func TestFailedSync(t *testing.T) {
	m := newMachine(t)
	var broken atomic.Bool
	m.drive = func(fs vfs.FS) vfs.FS {
		broken.Store(false)
		return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken.Load() && syncing(op) && strings.HasSuffix(op.Path, ".log") {
				return errors.New("input/output error")
			}
			return nil
		}))
	}
	m.start()
	m.s.Begin(true)
	for m.s.Round = range rig.Rounds(5, 200) {
		m.round(4, 2, time.Duration(m.s.Rng.Int64N(int64(60*time.Millisecond))), func(rng *rand.Rand) {
			broken.Store(true)
			time.Sleep(time.Duration(rng.Int64N(int64(30 * time.Millisecond)))) // how long the clients meet the fault is random
			// The first write after the failure notices it; no write may succeed after that.
			first := storage.Txn{Ops: []storage.Op{storage.Put("/probe", []byte("x"))}}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			for range 2 {
				if r, err := m.engine.Commit(ctx, first); err == nil || ctx.Err() != nil {
					t.Errorf("a commit (at %d) though nothing can be synced: %v", r, err)
				}
			}
		})
		if err := m.s.Check(); err != nil {
			t.Fatalf("round %d: %v", m.s.Round, err)
		}
	}
	m.s.Round++
	if err := m.s.End(); err != nil {
		t.Fatal(err)
	}
}

// TestSlowDisk checks the history of clients on a disk whose syncs take a random time.
func TestSlowDisk(t *testing.T) {
	m := newMachine(t)
	var syncs atomic.Int64
	m.drive = func(fs vfs.FS) vfs.FS {
		return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if syncing(op) {
				time.Sleep(time.Duration(syncs.Add(1)%7) * 3 * time.Millisecond)
			}
			return nil
		}))
	}
	m.start()
	m.s.Begin(true)
	for m.s.Round = range rig.Rounds(3, 50) {
		m.round(8, 2, 400*time.Millisecond, nil)
		if err := m.s.Check(); err != nil {
			t.Fatalf("round %d: %v", m.s.Round, err)
		}
	}
	m.s.Round++
	if err := m.s.End(); err != nil {
		t.Fatal(err)
	}
}

// meteredFS reports an amount of free space that the test sets.
type meteredFS struct {
	vfs.FS
	left *atomic.Int64
}

func (f meteredFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	left := uint64(f.left.Load())
	return vfs.DiskUsage{AvailBytes: left, TotalBytes: 1 << 40, UsedBytes: 1<<40 - left}, nil
}

func (f meteredFS) Unwrap() vfs.FS { return f.FS }

// TestFullDisk takes the free space away and gives it back while clients work. Without space, writes are answered with
// the right status and have no effect, and reads and watches continue. Writes succeed again when there is space.
func TestFullDisk(t *testing.T) {
	m := newMachine(t)
	var left atomic.Int64
	left.Store(1 << 30)
	m.drive = func(fs vfs.FS) vfs.FS { return meteredFS{fs, &left} }
	m.start()
	m.s.Begin(true)
	const probes = 20 // as many writes take about as long as a few of the other clients
	await := func(ctx context.Context, what string, status int) {
		m.t.Helper()
		c := m.s.Client(997)
		wait.Seen(t, what, func() (bool, string) {
			got := c.Create(ctx, m.s.Fresh("probe"), m.s.Value(), "").Status
			return got == status, fmt.Sprintf("writes are answered %d, want %d", got, status)
		})
	}
	// The server keeps running between the rounds: a request that its client has cancelled would take effect in the
	// next round.
	m.s.Gentle = true
	for m.s.Round = range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
		defer cancel()
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			m.s.Load(ctx, 4, 2)
		}()
		left.Store([]int64{20 << 20, 1 << 20}[m.s.Round]) // enough for deletions only; not enough for any write
		await(ctx, "the refusal of writes on a full disk", http.StatusInsufficientStorage)
		// Requests in flight when the space ran out may still take effect.
		grows := func() string {
			before := m.s.Client(996).List(ctx, "", 0)
			for range probes {
				await(ctx, "a refusal between the lists", http.StatusInsufficientStorage)
			}
			after := m.s.Client(996).List(ctx, "", 0)
			if len(after.Items) > len(before.Items) || after.Items == nil {
				return fmt.Sprintf("from %d to %d objects, %v", len(before.Items), len(after.Items), after.Outcome)
			}
			return ""
		}
		if grows() != "" {
			if how := grows(); how != "" {
				t.Errorf("a full disk: %s", how)
			}
		}
		left.Store(1 << 30)
		for range probes {
			await(ctx, "a write that succeeds, with space again", http.StatusCreated)
		}
		cancel()
		wait.Receive(t, "the clients to end", loaded)
		m.s.Rec.Settle()
		if err := m.s.Check(); err != nil {
			t.Fatalf("round %d: %v", m.s.Round, err)
		}
	}
	if err := m.s.End(); err != nil {
		t.Fatal(err)
	}
}
