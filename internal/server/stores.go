package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/controller/bootstrap"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/egress"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/health"
	"github.com/keelson-dev/keelson/internal/server/keptkeys"
	"github.com/keelson-dev/keelson/internal/server/pace"
	"github.com/keelson-dev/keelson/internal/server/reload"
	"github.com/keelson-dev/keelson/internal/server/retention"
	"github.com/keelson-dev/keelson/internal/server/storemetrics"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/encrypt"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// idleDrop is the time after which a resource without readers is removed from memory.
const idleDrop = 30 * time.Minute

// testSweepInterval is the time between two searches for expired objects with Testing.Clock, which a test may have moved.
const testSweepInterval = 10 * time.Millisecond

// stores are the stores of objects with their caches.
type stores struct {
	storesOptions
	backend backend
	etcdTLS func() *tls.Config // of connections to etcd; nil if no files are configured
	// encryption is nil if values are stored without encryption.
	encryption *encrypt.Encryption
	keys       *keptkeys.Check
	// main is the store of all resources without a store of their own. overridden are the other stores.
	main       storage.Store
	overridden []storage.Store
	places     []storePart
	measured   *cache.Stores
}

// storesOptions are the dependencies of stores.
type storesOptions struct {
	config  *settings
	egress  *egress.Selector
	metrics *metrics.Metrics
	log     *slog.Logger
	// fail is called when a store cannot go on.
	fail func(error)
}

// storePart is a part of a store with its own cache, and the resources in it. If several parts have a resource, the
// first is used.
type storePart struct {
	store storage.Store
	holds func(k *registry.Kind, prefix string) bool
	cache *cache.Cache
	// share is the part of Storage.CacheMemory that the cache may use, in relation to those of the other parts.
	share int64
}

// backend is the kind of store that Storage.Backend names.
type backend struct {
	// cluster is the name of the store in metrics.
	cluster string
	// root is the prefix of all keys in the store, "" for the default.
	root string
	// check finds out, before anything is written, whether the data directory may be used; nil if there is nothing to check.
	check func() error
	open  func(context.Context) error
}

// newStores reads the encryption configuration. open opens the stores.
func newStores(o storesOptions) (*stores, error) {
	s := &stores{storesOptions: o, measured: cache.NewStores(o.metrics), keys: keptkeys.New()}
	s.backend = s.choose()
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	counts := encrypt.NewMetrics(bootstrap.ServerName(host))
	o.metrics.Register(counts)
	if o.config.Storage.EncryptionConfigFile == "" {
		return s, nil
	}
	return s, s.openEncryption(encrypt.Options{
		File: o.config.Storage.EncryptionConfigFile, Reload: o.config.Storage.EncryptionReload, Root: s.backend.root,
		Metrics: counts, Logger: o.log,
	})
}

// openEncryption applies the encryption configuration.
func (s *stores) openEncryption(o encrypt.Options) (err error) {
	if !o.Reload {
		o.Read = filewatch.ReadFile
		s.encryption, err = encrypt.Open(o)
		return err
	}
	_, err = s.config.files.Load(reload.Part{
		Flag: "--encryption-provider-config", Path: o.File,
		Apply: func(read filewatch.Read) (err error) {
			if s.encryption != nil {
				return s.encryption.Reload(s.config.files.Context(), read)
			}
			o.Read = read
			s.encryption, err = encrypt.Open(o)
			return err
		},
		Observe: func(err error) { s.encryption.CountReload(err) },
	})
	return err
}

// choose finds what Storage.Backend names. Beside it only the default of the history and a fork look at the name; other code
// uses the optional interfaces of the store.
func (s *stores) choose() backend {
	switch s.config.Storage.Backend {
	case config.StorageEtcd:
		return backend{cluster: "etcd-0", root: etcdRoot(&s.config.Storage.Etcd), open: s.openClusters}
	case config.StorageMemory:
		return backend{cluster: "embedded", open: func(ctx context.Context) error {
			return s.openEmbedded(ctx, embedded.Options{InMemory: true})
		}}
	}
	return backend{
		cluster: "embedded",
		check:   func() error { return datadir.NotRestoring(s.config.Storage.DataDir) },
		open: func(ctx context.Context) error {
			return s.openEmbedded(ctx, embedded.Options{Dir: datadir.StoreDir(s.config.Storage.DataDir)})
		},
	}
}

// open opens the stores and their caches.
func (s *stores) open(ctx context.Context) error {
	if err := s.backend.open(ctx); err != nil {
		return err
	}
	catchUp := cache.NewCatchUp(0)
	budget, shares := s.cacheMemory(), int64(0)
	for i := range s.places {
		s.places[i].share = max(s.places[i].share, 1)
		shares += s.places[i].share
	}
	for i := range s.places {
		p := &s.places[i]
		p.cache = cache.New(cache.Options{
			Store: p.store, Budget: budget / shares * p.share, IdleDrop: idleDrop, CatchUp: catchUp,
			Metrics: s.measured.Resource("", ""), Logger: s.log,
		})
	}
	if s.encryption != nil {
		s.encryption.OnReload(func(dropped encrypt.Dropped) {
			for _, p := range s.places {
				p.cache.RetryUnread()
			}
			s.keys.Reloaded(dropped)
		})
	}
	s.metrics.Register(storemetrics.CacheMemory(s.cacheUsage)...)
	s.metrics.GaugeFunc("keelson_catchup_streams", "Number of open streams of old changes, which watches share that begin "+
		"before the log of the cache.", func() int64 { return int64(catchUp.Open()) })
	s.metrics.GaugeFunc("keelson_catchup_waiting_watches", "Number of watches that wait for old changes.",
		func() int64 { return int64(catchUp.Waiting()) })
	s.metrics.Register(storemetrics.Gauge("apiserver_storage_size_bytes",
		"[STABLE] Size of the storage database file physically allocated in bytes.", s.backend.cluster,
		func() int64 { return s.main.Stats().SizeBytes }))
	if files, ok := s.main.(storage.DamageCounter); ok {
		s.metrics.Register(storemetrics.Gauge("apiserver_storage_damaged_files",
			"[ALPHA] Number of files of the store in which damage was met since it was opened.", s.backend.cluster,
			files.DamagedFiles))
	}
	if history, ok := s.main.(storage.History); ok {
		s.metrics.GaugeFunc("keelson_history_bytes", "Bytes of old versions that are kept for reads of the past, before compression.",
			func() int64 { return history.Kept().Bytes })
		s.metrics.Register(storemetrics.GivenUp(history))
	}
	if disk, ok := s.main.(storage.SpaceReporter); ok {
		s.metrics.Register(storemetrics.Space(disk.Space)...)
	}
	return nil
}

// warning returns what an operator has to do about the store, "" if there is nothing. Requests that it does not concern are served.
func (s *stores) warning() string {
	if files, ok := s.main.(storage.DamageCounter); ok && files.DamagedFiles() > 0 {
		return "data on the disk is damaged, and requests that need it fail: stop the server, then keelson check says what is lost, and " +
			"keelson repair makes the rest usable"
	}
	if disk, ok := s.main.(storage.SpaceReporter); ok && disk.Space().Low {
		return "the store refuses writes, because too little disk space is free"
	}
	return ""
}

// mostShare is the share of a part of which much is read, in relation to that of Events.
const mostShare = 7

// leastCacheMemory is the default of Storage.CacheMemory on machines with little memory, in bytes.
const leastCacheMemory = 32 << 20

// cacheMemory returns the memory that the caches may use together, in bytes.
func (s *stores) cacheMemory() int64 {
	if n := int64(s.config.Storage.CacheMemory); n > 0 {
		return n
	}
	if usable := pace.ReadMemory(os.DirFS("/")).Usable(); usable > 0 {
		return max(usable/4, leastCacheMemory)
	}
	return cache.DefaultBudget // the memory of the machine is unknown
}

// cacheUsage returns the memory of all caches.
func (s *stores) cacheUsage() (sum cache.Usage) {
	for i := range s.places {
		u := s.places[i].cache.Usage()
		sum.Budget += u.Budget
		sum.Objects += u.Objects
		sum.Encodings += u.Encodings
		sum.Logs += u.Logs
		sum.DroppedObjects += u.DroppedObjects
		sum.DroppedEncodings += u.DroppedEncodings
	}
	return sum
}

// openEmbedded opens the embedded engine, or the store of Options.OpenStore.
func (s *stores) openEmbedded(ctx context.Context, options embedded.Options) (err error) {
	s.main, err = s.openEngine(ctx, options)
	if err != nil {
		return err
	}
	s.places = []storePart{{store: s.main, holds: func(*registry.Kind, string) bool { return true }}}
	return nil
}

func (s *stores) openEngine(ctx context.Context, options embedded.Options) (store storage.Store, err error) {
	if s.config.OpenStore != nil {
		return s.config.OpenStore(ctx)
	}
	if origin := s.config.origin; origin != nil {
		options.Image = origin.image
	}
	options.Logger, options.HistoryWindow, options.OnFailure = s.log, s.config.Storage.HistoryWindow, s.failed
	if options.Retention, err = retention.Parse(&s.config.Storage); err != nil {
		return nil, err
	}
	options.OnGroup = embedded.NewCommits(s.metrics).Group
	if clock := s.config.Testing.Clock; clock != nil {
		options.Clock, options.SweepInterval = clock.Now, testSweepInterval
	}
	if s.config.AdjustEngine != nil {
		s.config.AdjustEngine(&options)
	}
	store, err = embedded.Open(options)
	switch {
	case errors.Is(err, embedded.ErrLocked):
		return nil, fmt.Errorf("the data directory %s is %w", s.config.Storage.DataDir, datadir.ErrUsed)
	case err != nil:
		return nil, fmt.Errorf("cannot open the store: %w", err)
	}
	return store, nil
}

func (s *stores) failed(err error) { s.fail(fmt.Errorf("the store failed: %w", err)) }

// eventsPrefix is the key prefix of Events. They are many and unimportant, so they have a watch of their own that
// does not delay others.
const eventsPrefix = registry.Root + "events/"

// openClusters connects to all etcd clusters.
func (s *stores) openClusters(ctx context.Context) error {
	calls := etcd.NewMetrics(s.metrics)
	overrides, err := parseOverrides(s.config.Storage.Etcd.Overrides)
	if err != nil {
		return err
	}
	c := &s.config.Storage.Etcd
	certificate := reload.Pair{Flag: "--etcd-certfile", CertFile: c.CertFile, KeyFile: c.KeyFile}
	s.etcdTLS, err = s.config.files.ClientTLS("--etcd-cafile", c.CAFile, certificate)
	if err != nil {
		return err
	}
	for _, o := range overrides {
		store, err := s.openCluster(ctx, o.servers, calls)
		if err != nil {
			return err
		}
		s.overridden = append(s.overridden, store)
		s.places = append(s.places, storePart{store: store, share: mostShare, holds: func(k *registry.Kind, _ string) bool {
			return slices.ContainsFunc(o.resources, func(gr schema.GroupResource) bool { return isOf(k, gr) })
		}})
	}
	store, err := s.openCluster(ctx, s.config.Storage.Etcd.Servers, calls)
	if err != nil {
		return err
	}
	s.main = store
	shares := []int64{mostShare, 1, mostShare} // the part in the middle has the Events
	for i, part := range store.Parts(eventsPrefix) {
		s.places = append(s.places, storePart{
			store: part, share: shares[i],
			holds: func(_ *registry.Kind, prefix string) bool { return part.Contains(prefix) },
		})
	}
	return nil
}

func (s *stores) openCluster(ctx context.Context, servers []string, calls etcd.Recorder) (*etcd.Store, error) {
	c := s.config.Storage.Etcd
	var dial func(context.Context, string, string) (net.Conn, error)
	if s.egress.Has(egress.Etcd) { // otherwise the client opens connections in its own way
		dial = s.egress.Dialer(egress.Etcd)
	}
	store, err := etcd.Open(ctx, etcd.Options{
		Endpoints: servers, TLS: s.etcdTLS, Prefix: etcdRoot(&c),
		CompactionInterval: c.CompactionInterval, PollInterval: cmp.Or(c.DBMetricPollInterval, -1),
		LeaseReuse: c.LeaseReuse, Logger: s.log,
		Dial: dial, OnFailure: s.failed, Recorder: calls,
	})
	if err != nil {
		return nil, config.Errorf("{Storage.Etcd.Servers}: %w", err)
	}
	return store, nil
}

// isOf reports whether a kind is served as a resource.
func isOf(k *registry.Kind, gr schema.GroupResource) bool {
	inGroup := func(v registry.Version) bool { return v.Group != "" && v.Group == gr.Group }
	return k.Resource == gr.Resource && (k.Group == gr.Group || slices.ContainsFunc(k.Versions, inGroup))
}

// registry returns the kinds bound to the stores.
func (s *stores) registry(kinds []*registry.Kind) (*registry.Registry, error) {
	reg, err := registry.NewPlaced(kinds, s.storePartOf, s.config.Testing.Clock.Now)
	if err == nil && s.encryption != nil {
		reg.Transform(func(gr schema.GroupResource) registry.Transformer { return s.encryption.Resource(gr) })
	}
	return reg, err
}

// storePartOf returns the part in which the resource of a kind is stored. prefix is the prefix of its keys.
func (s *stores) storePartOf(k *registry.Kind, prefix string) registry.Backend {
	i := slices.IndexFunc(s.places, func(p storePart) bool { return p.holds(k, prefix) })
	return registry.Backend{Store: s.places[i].store, Cache: s.places[i].cache, Metrics: s.measured}
}

// checks returns the health checks of the main store and of the overrides, with the names of kube-apiserver.
func (s *stores) checks() []health.Check {
	alive, ready := s.config.Storage.Etcd.HealthcheckTimeout, s.config.Storage.Etcd.ReadycheckTimeout
	list := []health.Check{
		{Name: "etcd", On: health.Everywhere, Probe: answers(s.main, alive)},
		{Name: "etcd-readiness", On: health.Readyz, Probe: answers(s.main, ready)},
	}
	for i, store := range s.overridden {
		list = append(list,
			health.Check{
				Name: fmt.Sprintf("etcd-override-%d", i), Group: "etcd", On: health.Everywhere, Probe: answers(store, alive),
			},
			health.Check{
				Name: fmt.Sprintf("etcd-override-readiness-%d", i), Group: "etcd-readiness", On: health.Readyz,
				Probe: answers(store, ready),
			})
	}
	return list
}

// answers returns a probe that reads the revision of a store.
func answers(store storage.Store, timeout time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := within(ctx, timeout)
		defer cancel()
		_, err := store.Revision(ctx)
		return err
	}
}

// within limits ctx to a duration. 0 means no limit.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

// exclusive reports whether no other process writes to the main store.
func (s *stores) exclusive() bool { return storage.IsExclusive(s.main) }

// cached is a probe that fails until the caches can serve reads.
func (s *stores) cached(ctx context.Context) error {
	ctx, cancel := within(ctx, s.config.Storage.Etcd.ReadycheckTimeout)
	defer cancel()
	for _, p := range s.places {
		if _, err := p.cache.Current(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close closes the caches, then the stores, then the encryption. stores may be nil.
func (s *stores) close() error {
	if s == nil {
		return nil
	}
	for _, p := range s.places {
		if p.cache != nil {
			p.cache.Close()
		}
	}
	var errs []error
	for _, store := range s.overridden {
		errs = append(errs, store.Close())
	}
	if s.main != nil {
		errs = append(errs, s.main.Close())
	}
	if s.encryption != nil {
		errs = append(errs, s.encryption.Close())
	}
	return errors.Join(errs...)
}
