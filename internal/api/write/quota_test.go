package write_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/quota"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	kinds "github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// shared is a store that does not claim to be the only writer of its data.
type shared struct{ storage.Store }

// quotaServer is an API server with the plug-in ResourceQuota.
type quotaServer struct {
	*registry.Registry
	pipeline *write.Pipeline
}

func newQuotaServer(t *testing.T, place func(prefix string) storage.Store) *quotaServer {
	t.Helper()
	caches := map[storage.Store]*cache.Cache{}
	reg, err := registry.NewPlaced(kinds.Kinds(features.Gates{}), func(_ *registry.Kind, prefix string) registry.Backend {
		store := place(prefix)
		if caches[store] == nil {
			caches[store] = cache.New(cache.Options{Store: store})
			t.Cleanup(caches[store].Close)
		}
		return registry.Backend{Store: store, Cache: caches[store]}
	}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	chain := admission.NewChain(nil, quota.Plugin(reg, quota.Config{}))
	return &quotaServer{reg, write.New(reg, chain, nil, nil)}
}

func newStore(t *testing.T) storage.Store {
	t.Helper()
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func (s *quotaServer) create(ctx context.Context, kind string, obj registry.Object, dryRun bool) error {
	r := s.Resource(corev1.Resource(kind))
	_, err := s.pipeline.Do(ctx, write.Request{
		Verb: write.Create, Target: registry.NewServed(r, r.Kind.Version("v1")), Namespace: "default",
		Options: write.Options{DryRun: dryRun},
		Make:    func(context.Context, *write.Current) (registry.Object, error) { return obj, nil },
	})
	return err
}

// limit stores a quota of ConfigMaps with its usage.
func (s *quotaServer) limit(t *testing.T, hard, used string) {
	t.Helper()
	s.createQuota(t, hard)
	s.setStatus(t, hard, used)
}

// createQuota stores a quota of ConfigMaps without a status. It limits nothing yet.
func (s *quotaServer) createQuota(t *testing.T, hard string) {
	t.Helper()
	q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: limits(hard)}}
	q.Name = "q"
	if err := s.create(t.Context(), "resourcequotas", q, false); err != nil {
		t.Fatal(err)
	}
}

// setStatus writes the status of the quota, as the quota controller does.
func (s *quotaServer) setStatus(t *testing.T, hard, used string) {
	t.Helper()
	r := s.Resource(corev1.Resource("resourcequotas"))
	_, err := s.pipeline.Do(t.Context(), write.Request{
		Verb: write.Update, Target: registry.NewServed(r, r.Kind.Version("v1")), Namespace: "default", Name: "q",
		Subresource: r.Kind.Subresource("status"),
		Make: func(ctx context.Context, c *write.Current) (registry.Object, error) {
			obj := c.Copy()
			obj.(*corev1.ResourceQuota).Status = corev1.ResourceQuotaStatus{Hard: limits(hard), Used: limits(used)}
			return obj, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func limits(configMaps string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse(configMaps)}
}

// used returns the number of ConfigMaps in the status of the quota, and the number of ConfigMaps that exist.
func (s *quotaServer) used(t *testing.T) (used int64, are int) {
	t.Helper()
	obj, err := s.Get(t.Context(), corev1.Resource("resourcequotas"), "default", "q")
	if err != nil {
		t.Fatal(err)
	}
	n := obj.(*corev1.ResourceQuota).Status.Used[corev1.ResourceConfigMaps]
	all, err := s.List(t.Context(), configMaps, "default")
	if err != nil {
		t.Fatal(err)
	}
	return n.Value(), len(all)
}

// race lets 64 writers create more ConfigMaps than the quota has left, and checks that exactly as many are created.
func race(t *testing.T, servers ...*quotaServer) {
	t.Helper()
	const writers, each, hard, before = 64, 3, 100, 10
	servers[0].limit(t, fmt.Sprint(hard), fmt.Sprint(before))
	var created, refused atomic.Int32
	together(writers, func(i int) {
		for n := range each {
			err := servers[i%len(servers)].create(t.Context(), "configmaps", configMap(fmt.Sprintf("m-%d-%d", i, n)), false)
			switch {
			case err == nil:
				created.Add(1)
			case strings.Contains(err.Error(), "exceeded quota: q, requested: configmaps=1, used: configmaps=100, limited"):
				refused.Add(1)
			default:
				t.Error(err)
			}
		}
	})
	if created.Load() != hard-before || refused.Load() != writers*each-(hard-before) {
		t.Errorf("%d created, %d refused, want %d created", created.Load(), refused.Load(), hard-before)
	}
	for _, s := range servers {
		if used, are := s.used(t); used != hard || are != hard-before {
			t.Errorf("%d used and %d stored, want %d and %d", used, are, hard, hard-before)
		}
	}
}

// TestQuotaAtItsEdge races for a quota in one server, and in two servers on one store.
func TestQuotaAtItsEdge(t *testing.T) {
	t.Run("one server", func(t *testing.T) {
		store := newStore(t)
		race(t, newQuotaServer(t, func(string) storage.Store { return store }))
	})
	t.Run("two servers", func(t *testing.T) {
		store := storage.Store(shared{newStore(t)})
		place := func(string) storage.Store { return store }
		race(t, newQuotaServer(t, place), newQuotaServer(t, place))
	})
	t.Run("quotas in another store", func(t *testing.T) {
		quotas, others := newStore(t), newStore(t)
		race(t, newQuotaServer(t, func(prefix string) storage.Store {
			if strings.Contains(prefix, "resourcequotas") {
				return quotas
			}
			return others
		}))
	})
}

// delayed is a store whose watches deliver nothing while it is held.
type delayed struct {
	storage.Store
	held sync.RWMutex // locked while it is held
}

func (d *delayed) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	w, err := d.Store.Watch(ctx, prefix, from)
	return &delayedWatcher{w, d}, err
}

type delayedWatcher struct {
	storage.Watcher
	store *delayed
}

func (w *delayedWatcher) Next(ctx context.Context) (storage.Batch, error) {
	b, err := w.Watcher.Next(ctx)
	w.store.held.RLock()
	defer w.store.held.RUnlock()
	return b, err
}

// TestQuotaOfAnotherServer writes through server two, which has not yet seen the limit that server one has put
// into effect.
func TestQuotaOfAnotherServer(t *testing.T) {
	store := &counting{Store: shared{newStore(t)}}
	late := &delayed{Store: store}
	one := newQuotaServer(t, func(string) storage.Store { return store })
	two := newQuotaServer(t, func(string) storage.Store { return late })
	one.createQuota(t, "1")
	if err := two.create(t.Context(), "configmaps", configMap("a"), false); err != nil {
		t.Fatal(err) // no status, no limit
	}
	late.held.Lock()
	one.setStatus(t, "1", "1")
	before := store.commits.Load()
	answer := make(chan error, 1)
	go func() { answer <- two.create(t.Context(), "configmaps", configMap("b"), false) }()
	for deadline := time.Now().Add(time.Minute); store.commits.Load() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the write is not tried within a minute")
		}
	}
	late.held.Unlock()
	select {
	case err := <-answer:
		if err == nil || !strings.Contains(err.Error(), "exceeded quota: q, requested: configmaps=1") {
			t.Errorf("the write beyond the quota: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("no answer within a minute")
	}
}

// counting counts the commits of a store.
type counting struct {
	storage.Store
	commits atomic.Int64
	fail    atomic.Bool
}

var errLost = errors.New("the commit is lost")

func (c *counting) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	c.commits.Add(1)
	if c.fail.Load() {
		return 0, errLost
	}
	return c.Store.Commit(ctx, txn)
}

// TestChargesBelongToTheWrite checks that object and charge are one transaction, that a failed write and a dry run
// are not charged, and that the next write does not have to wait for them.
func TestChargesBelongToTheWrite(t *testing.T) {
	store := &counting{Store: newStore(t)}
	s := newQuotaServer(t, func(string) storage.Store { return store })
	s.limit(t, "2", "0")
	expect := func(what string, commits int64, used int64, are int) {
		t.Helper()
		if n := store.commits.Swap(0); n != commits {
			t.Errorf("%s: %d commits, want %d", what, n, commits)
		}
		if u, n := s.used(t); u != used || n != are {
			t.Errorf("%s: %d used and %d stored, want %d and %d", what, u, n, used, are)
		}
	}
	store.commits.Store(0)
	if err := s.create(t.Context(), "configmaps", configMap("a"), true); err != nil {
		t.Error(err)
	}
	expect("a dry run", 0, 0, 0)
	store.fail.Store(true)
	if err := s.create(t.Context(), "configmaps", configMap("a"), false); !errors.Is(err, errLost) {
		t.Error(err)
	}
	store.fail.Store(false)
	expect("a failed write", 1, 0, 0)
	if err := s.create(t.Context(), "configmaps", configMap("a"), false); err != nil {
		t.Error(err)
	}
	expect("a create", 1, 1, 1)
	if err := s.create(t.Context(), "configmaps", configMap("a"), false); err == nil {
		t.Error("a second object of the same name was created")
	}
	expect("a create of an object that exists", 1, 1, 1)
}
