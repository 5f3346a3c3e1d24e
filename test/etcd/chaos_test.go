package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
	"github.com/keelson-dev/keelson/test/history"
	"github.com/keelson-dev/keelson/test/rig"
)

const chaosToken = "chaos-token"

// TestKill kills members of a cluster of three, and replicas of the server, at random moments, while clients write,
// read and watch on all three replicas. At the end of each round all replicas are killed, and everything is started
// again. The whole history over all replicas is checked: see docs/reliability.md.
func TestKill(t *testing.T) {
	p := startProcesses(t, 3, 3, chaosToken)
	transport := &http.Transport{
		//nolint:gosec // the server runs on this machine
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}
	defer transport.CloseIdleConnections()
	s := rig.NewScenario(t, rig.Seeded(t), &http.Client{Transport: transport})
	s.Token = chaosToken
	s.At(p.urls()[0], p.urls()...)
	s.Begin(true)
	faults := map[string]int{}
	for s.Round = range rig.Rounds(6, 100) {
		ctx, cancel := context.WithCancel(t.Context())
		seed := s.Rng.Uint64()
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			s.Load(ctx, 6, 3)
		}()
		faults[p.fault(rand.New(rand.NewPCG(seed, 4)))]++
		cancel()
		<-loaded
		kill(p.running.replicas, 0, 1, 2)
		up(t, "member", p.members, p.running.members)
		p.settle()
		s.Rec.Settle()
		p.restart()
		if err := s.Check(); err != nil {
			t.Fatalf("round %d: %v", s.Round, err)
		}
	}
	s.Round++
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	t.Logf("killed: %v", faults)
}

// fault lets the clients work, kills something, lets them continue, and returns what it has killed. A lost quorum may
// be restored meanwhile.
func (p *processes) fault(rng *rand.Rand) string {
	pause := func(most time.Duration) { time.Sleep(time.Duration(rng.Int64N(int64(most)))) }
	pause(300 * time.Millisecond)
	defer pause(800 * time.Millisecond) // enough for an election
	one, other := rng.IntN(3), rng.IntN(3)
	switch rng.IntN(5) {
	case 0, 1:
		kill(p.running.members, one)
		return "a member"
	case 2:
		kill(p.running.members, one, (one+1)%3)
		if rng.IntN(2) == 0 {
			pause(time.Second)
			up(p.t, "member", p.members, p.running.members)
			return "a quorum, back at once"
		}
		return "a quorum"
	case 3:
		kill(p.running.members, one)
		kill(p.running.replicas, other)
		return "a member and a replica"
	}
	kill(p.running.replicas, other)
	return "a replica"
}

// TestPlantedBugs checks that two replicas are found faulty if one of them works on its cluster with a fault: the
// checks must name a promise that the fault breaks.
func TestPlantedBugs(t *testing.T) {
	for _, bug := range []struct {
		name   string
		breaks []error
		plant  func(*etcd.Store) storage.Store
	}{
		{"nothing", nil, func(s *etcd.Store) storage.Store { return s }},
		{"the revision that was seen is taken for the current one", []error{history.ErrLinearizable},
			func(s *etcd.Store) storage.Store { return &seenStore{Store: s} }},
		{"a watch goes on too late after an interruption", []error{history.ErrReliable, history.ErrLinearizable},
			func(s *etcd.Store) storage.Store { return &interruptedStore{Store: s, shift: 1} }},
		{"progress is announced before the events", []error{history.ErrReliable, history.ErrLinearizable, history.ErrOrdered},
			func(s *etcd.Store) storage.Store { return &hastyStore{Store: s} }},
		{"a transaction is sent again after it has taken effect", []error{history.ErrInvented},
			func(s *etcd.Store) storage.Store { return &repeatingStore{Store: s} }},
		{"a transaction is sent without its conditions", []error{history.ErrLinearizable, history.ErrInvented},
			func(s *etcd.Store) storage.Store { return &carelessStore{Store: s} }},
		{"a transaction is acknowledged and not sent", []error{history.ErrDurable},
			func(s *etcd.Store) storage.Store { return &forgetfulStore{Store: s} }},
	} {
		t.Run(bug.name, func(t *testing.T) {
			c := start(t, 1, nil)
			serve := func(store storage.Store) *rig.Server {
				s, err := rig.Serve(rig.Options{Store: store})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
				return s
			}
			honest := serve(c.open(t, etcd.Options{}))
			faulty := serve(bug.plant(c.open(t, etcd.Options{})))
			transport := &http.Transport{MaxIdleConnsPerHost: 100}
			t.Cleanup(transport.CloseIdleConnections)
			s := rig.NewScenario(t, rig.Seeded(t), &http.Client{Transport: transport})
			s.Gentle = true
			if bug.breaks != nil {
				s.Patience = 5 * time.Second // the check waits this long for the last event, which some faults drop
			}
			s.At(honest.URL, honest.URL, faulty.URL)
			s.Begin(true)
			var found error
			broken := func() bool {
				return slices.ContainsFunc(bug.breaks, func(promise error) bool { return errors.Is(found, promise) })
			}
			for s.Round = range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				s.Load(ctx, 4, 2)
				cancel()
				if found = errors.Join(found, s.Check()); broken() {
					return
				}
				if bug.breaks == nil && s.Round == 5 {
					break
				}
			}
			found = errors.Join(found, s.End())
			if bug.breaks == nil && found == nil {
				return
			}
			if !broken() {
				t.Errorf("found %.2000v, want %v", found, bug.breaks)
			}
		})
	}
}

// seenStore does not ask the cluster for the current revision. It returns the revision that it has seen by the last
// call.
type seenStore struct {
	*etcd.Store
	last atomic.Int64
}

func (s *seenStore) Revision(context.Context) (int64, error) {
	return max(s.last.Swap(s.Stats().Revision), 1), nil
}

// Watch returns a watcher whose events are delayed.
func (s *seenStore) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	w, err := s.Store.Watch(ctx, prefix, from)
	return lateWatcher{w}, err
}

// lateWatcher delivers events late.
type lateWatcher struct{ storage.Watcher }

const late = 5 * time.Millisecond

func (w lateWatcher) Next(ctx context.Context) (storage.Batch, error) {
	b, err := w.Watcher.Next(ctx)
	time.Sleep(late)
	return b, err
}

// interruptedStore has watches that are started again after every ten batches, at a wrong revision.
type interruptedStore struct {
	*etcd.Store
	shift int64
}

func (s *interruptedStore) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	w, err := s.Store.Watch(ctx, prefix, from)
	if err != nil {
		return nil, err
	}
	return &interruptedWatcher{Watcher: w, store: s, prefix: prefix}, nil
}

type interruptedWatcher struct {
	storage.Watcher
	store  *interruptedStore
	prefix string
	n      int
}

func (w *interruptedWatcher) Next(ctx context.Context) (storage.Batch, error) {
	b, err := w.Watcher.Next(ctx)
	if err != nil {
		return b, err
	}
	if w.n++; w.n%10 == 0 {
		next, err := w.store.Store.Watch(ctx, w.prefix, b.Revision+1+w.store.shift)
		if err != nil {
			return b, err
		}
		_ = w.Watcher.Close() // the error does not matter
		w.Watcher = next
	}
	return b, nil
}

// hastyStore has watches that announce the revision of a batch before its events.
type hastyStore struct{ *etcd.Store }

func (s *hastyStore) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	w, err := s.Store.Watch(ctx, prefix, from)
	return &hastyWatcher{Watcher: w}, err
}

type hastyWatcher struct {
	storage.Watcher
	held *storage.Batch
}

func (w *hastyWatcher) Next(ctx context.Context) (storage.Batch, error) {
	if held := w.held; held != nil {
		w.held = nil
		time.Sleep(late) // the events are on their way
		return *held, nil
	}
	b, err := w.Watcher.Next(ctx)
	if err != nil || len(b.Events) == 0 {
		return b, err
	}
	w.held = &b
	return storage.Batch{Revision: b.Revision}, nil
}

// RequestProgress is called by the cache when it waits for a revision.
func (w *hastyWatcher) RequestProgress() {
	if asks, ok := w.Watcher.(interface{ RequestProgress() }); ok {
		asks.RequestProgress()
	}
}

// repeatingStore sends some transactions twice, as a client that retries after a lost response.
type repeatingStore struct {
	*etcd.Store
	n atomic.Int64
}

func (s *repeatingStore) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	r, err := s.Store.Commit(ctx, txn)
	if err == nil && s.n.Add(1)%5 == 0 {
		return s.Store.Commit(ctx, txn)
	}
	return r, err
}

// carelessStore removes the conditions of some transactions.
type carelessStore struct {
	*etcd.Store
	n atomic.Int64
}

func (s *carelessStore) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	if s.n.Add(1)%5 == 0 {
		txn.Conditions = nil
	}
	return s.Store.Commit(ctx, txn)
}

// forgetfulStore commits another write instead of some transactions, and reports its revision.
type forgetfulStore struct {
	*etcd.Store
	n atomic.Int64
}

func (s *forgetfulStore) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	if s.n.Add(1)%5 == 0 {
		r, err := s.Store.Commit(ctx, storage.Txn{Ops: []storage.Op{storage.Put("/registry/elsewhere", nil)}})
		return r, err
	}
	return s.Store.Commit(ctx, txn)
}
