package server

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/server/egress"
	"github.com/keelson-dev/keelson/server/health"
	"github.com/keelson-dev/keelson/storage"
	"github.com/keelson-dev/keelson/storage/etcd"
)

// EtcdConfig says which etcd clusters keep the objects and how to talk to them.
type EtcdConfig struct {
	// Servers are the client URLs of the cluster's members.
	Servers []string
	// Overrides put resources on other clusters: group/resource#url;url.
	Overrides []string
	// CAFile, CertFile and KeyFile are PEM files for TLS to all clusters.
	CAFile, CertFile, KeyFile string
	// Prefix is what keys begin with.
	Prefix string
	// CompactionInterval is how often history is compacted; 0 leaves it to others.
	CompactionInterval time.Duration
	// DBMetricPollInterval is how often the size of the database is asked for; 0 is
	// once.
	DBMetricPollInterval time.Duration
	// LeaseReuse bounds for how long a lease is given to further objects.
	LeaseReuse time.Duration

	// HealthcheckTimeout and ReadycheckTimeout bound the health checks named etcd
	// and etcd-readiness, of every kind of store.
	HealthcheckTimeout, ReadycheckTimeout time.Duration
}

func defaultEtcd() EtcdConfig {
	return EtcdConfig{
		Prefix: etcd.DefaultPrefix, CompactionInterval: 5 * time.Minute, DBMetricPollInterval: 30 * time.Second,
		LeaseReuse: time.Minute, HealthcheckTimeout: 2 * time.Second, ReadycheckTimeout: 2 * time.Second,
	}
}

func (c EtcdConfig) validate() (errs []error) {
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Servers) == 0 {
		add("--etcd-servers must be specified")
	}
	if _, err := parseOverrides(c.Overrides); err != nil {
		errs = append(errs, err)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		add("--etcd-certfile and --etcd-keyfile must be given together")
	}
	if strings.Trim(c.Prefix, "/") == "" {
		add("--etcd-prefix must not be empty")
	}
	if c.CompactionInterval < 0 || c.DBMetricPollInterval < 0 || c.LeaseReuse < 0 {
		add("--etcd-compaction-interval, --etcd-db-metric-poll-interval and --lease-reuse-duration-seconds must not be negative")
	}
	return errs
}

// root is what keys in etcd begin with, as a path without a slash at its end.
func (c EtcdConfig) root() string { return path.Join("/", c.Prefix) }

// override is a cluster with the resources that are kept there.
type override struct {
	servers   []string
	resources []schema.GroupResource
}

var errOverride = errors.New("--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated")

// parseOverrides returns one override for each set of servers.
func parseOverrides(values []string) ([]override, error) {
	var out []override
	for _, v := range values {
		parts := strings.Split(v, "#")
		if len(parts) != 2 || parts[1] == "" {
			return nil, errOverride
		}
		group, name, ok := strings.Cut(parts[0], "/")
		if !ok || name == "" || strings.Contains(name, "/") {
			return nil, errOverride
		}
		servers := strings.Split(parts[1], ";")
		i := slices.IndexFunc(out, func(o override) bool { return sameSet(o.servers, servers) })
		if i < 0 {
			i, out = len(out), append(out, override{servers: servers})
		}
		out[i].resources = append(out[i].resources, schema.GroupResource{Group: group, Resource: name})
	}
	return out, nil
}

// sameSet says whether two lists have the same elements.
func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// place is a store with a cache of its own, and what is kept there. Of several
// places that hold a resource the first counts.
type place struct {
	store storage.Store
	holds func(k *registry.Kind, prefix string) bool
	cache *cache.Cache
	// formBudget is the cache's; 0 is what a cache has by itself.
	formBudget int64
}

// eventsPrefix is where Events are: many, and of little weight. They have a watch
// of their own, so that others do not wait for them.
const eventsPrefix = registry.Root + "events/"

// openEtcd connects to all clusters.
func (s *Server) openEtcd(ctx context.Context) error {
	overrides, err := parseOverrides(s.config.Etcd.Overrides)
	if err != nil {
		return err
	}
	for _, o := range overrides {
		store, err := s.openCluster(ctx, o.servers)
		if err != nil {
			return err
		}
		s.overridden = append(s.overridden, store)
		s.places = append(s.places, place{store: store, holds: func(k *registry.Kind, _ string) bool {
			return slices.ContainsFunc(o.resources, func(gr schema.GroupResource) bool { return isOf(k, gr) })
		}})
	}
	store, err := s.openCluster(ctx, s.config.Etcd.Servers)
	if err != nil {
		return err
	}
	s.store = store
	budgets := []int64{240 << 20, 32 << 20, 240 << 20} // together what one cache has
	for i, part := range store.Parts(eventsPrefix) {
		s.places = append(s.places, place{
			store: part, formBudget: budgets[i],
			holds: func(_ *registry.Kind, prefix string) bool { return part.Holds(prefix) },
		})
	}
	return nil
}

func (s *Server) openCluster(ctx context.Context, servers []string) (*etcd.Store, error) {
	c := s.config.Etcd
	poll := c.DBMetricPollInterval
	if poll == 0 {
		poll = -1
	}
	return etcd.Open(ctx, etcd.Options{
		Endpoints: servers, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, Prefix: c.root(),
		CompactionInterval: c.CompactionInterval, PollInterval: poll, LeaseReuse: c.LeaseReuse, Logger: s.log,
		Dial:      s.egress.Dialer(egress.Etcd),
		OnFailure: func(err error) { s.fail(fmt.Errorf("the store failed: %w", err)) },
	})
}

// isOf says whether a kind is served as that resource.
func isOf(k *registry.Kind, gr schema.GroupResource) bool {
	inGroup := func(v registry.Version) bool { return v.Group != "" && v.Group == gr.Group }
	return k.Resource == gr.Resource && (k.Group == gr.Group || slices.ContainsFunc(k.Versions, inGroup))
}

// backend is where the resource of a kind is, whose keys have the prefix.
func (s *Server) backend(k *registry.Kind, prefix string) registry.Backend {
	i := slices.IndexFunc(s.places, func(p place) bool { return p.holds(k, prefix) })
	return registry.Backend{Store: s.places[i].store, Cache: s.places[i].cache}
}

// stores are all of them, each once.
func (s *Server) stores() []storage.Store {
	list := slices.Clone(s.overridden)
	if s.store != nil {
		list = append(list, s.store)
	}
	return list
}

// storeChecks are the health checks of the default store and of those of overrides,
// by the names of the reference.
func (s *Server) storeChecks() []health.Check {
	alive, ready := s.config.Etcd.HealthcheckTimeout, s.config.Etcd.ReadycheckTimeout
	list := []health.Check{
		{Name: "etcd", On: health.Everywhere, Probe: answers(s.store, alive)},
		{Name: "etcd-readiness", On: health.Readyz, Probe: answers(s.store, ready)},
	}
	for i, store := range s.overridden {
		list = append(list,
			health.Check{Name: fmt.Sprintf("etcd-override-%d", i), Group: "etcd", On: health.Everywhere, Probe: answers(store, alive)},
			health.Check{Name: fmt.Sprintf("etcd-override-readiness-%d", i), Group: "etcd-readiness", On: health.Readyz, Probe: answers(store, ready)})
	}
	return list
}

// answers returns a probe that reads the revision of a store.
func answers(store storage.Store, timeout time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		_, err := store.Revision(ctx)
		return err
	}
}

// clusterName is the default store's name in metrics.
func (s *Server) clusterName() string {
	if s.config.Storage == StorageEtcd {
		return "etcd-0"
	}
	return "embedded"
}

// damagedFiles counts the damaged files of the store; nil where its files are those of
// others.
func (s *Server) damagedFiles() func() int64 {
	if s.config.Storage == StorageEtcd {
		return nil
	}
	return func() int64 { return s.store.Stats().DamagedFiles }
}
