// Package stores opens the stores of objects with their caches: the embedded engine, or one or several etcd clusters.
package stores

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/controller/bootstrap"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/egress"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/health"
	"github.com/keelson-dev/keelson/internal/server/keptkeys"
	"github.com/keelson-dev/keelson/internal/server/members"
	"github.com/keelson-dev/keelson/internal/server/pace"
	"github.com/keelson-dev/keelson/internal/server/reload"
	"github.com/keelson-dev/keelson/internal/server/retention"
	"github.com/keelson-dev/keelson/internal/server/storemetrics"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/copies"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/encrypt"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
	"github.com/keelson-dev/keelson/internal/storage/mirror"
)

// idleDrop is the time after which a resource without readers is removed from memory.
const idleDrop = 30 * time.Minute

// testSweepInterval is the time between two searches for expired objects if a test sets Testing.Clock, and may
// advance it.
const testSweepInterval = 10 * time.Millisecond

// Stores are the stores of objects with their caches.
type Stores struct {
	Options
	// Main is the store of all resources without a store of their own. It is nil before Open.
	Main storage.Store
	// Parts are the parts of the stores. Each has its own cache.
	Parts []Part
	// Members is nil unless this server is one of a cluster of servers with the same data.
	Members *members.Cluster
	// Encryption is nil if values are stored without encryption. Keys looks at each reload of its configuration.
	Encryption *encrypt.Encryption
	Keys       *keptkeys.Check

	backend    backend
	encryption encrypt.Options    // but for the file
	etcdTLS    func() *tls.Config // of connections to etcd; nil if no files are configured
	overridden []storage.Store    // the stores other than Main
	measured   *cache.Stores
}

// Options are the dependencies of Stores.
type Options struct {
	Config *config.Storage
	// Members makes Stores.Members, if that is needed.
	Members func() *members.Cluster
	Files   *reload.Files
	Egress  *egress.Selector
	Metrics *metrics.Metrics
	Log     *slog.Logger
	// Fail is called when a store fails and the server must be stopped.
	Fail func(error)
	// Clock is that of API objects; nil is the clock of the system.
	Clock *clock.Clock
	// Bucket has the copy of the data, nil if there is none (mirror.Options).
	Bucket bucket.Bucket
	// Confirm is embedded.Options.Confirm.
	Confirm func(ctx context.Context, revision int64) error
	// Image, unless it is nil, has the initial content of the embedded store.
	Image *embedded.Image
	// OpenStore, unless it is nil, opens a store that replaces the embedded engine. AdjustEngine, unless it is nil, changes the
	// options of the engine.
	OpenStore    func(context.Context) (storage.Store, error)
	AdjustEngine func(*embedded.Options)
}

// Part is a part of a store with its own cache. It has the resources for which holds is true and no earlier part's
// holds is.
type Part struct {
	Store storage.Store
	Cache *cache.Cache
	whole storage.Store // registry.Backend.Whole
	holds func(k *registry.Kind, prefix string) bool
	// share is the weight of the cache's part of Storage.CacheMemory, relative to the shares of the other parts.
	share int64
}

// backend is the kind of store that Storage.Backend names.
type backend struct {
	// cluster is the name of the store in metrics.
	cluster string
	// root is the prefix of all keys in the store, "" for the default.
	root string
	// check returns an error if the data directory must not be used. It writes nothing. It is nil if nothing must
	// be checked.
	check func() error
	open  func(context.Context) error
}

// New reads the encryption configuration. Open opens the stores.
func New(o Options) (*Stores, error) {
	s := &Stores{Options: o, measured: cache.NewStores(o.Metrics), Keys: keptkeys.New()}
	s.backend = s.choose()
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	counts := encrypt.NewMetrics(bootstrap.ServerName(host))
	o.Metrics.Register(counts)
	s.encryption = encrypt.Options{Reload: o.Config.EncryptionReload, Root: s.backend.root, Metrics: counts, Logger: o.Log}
	return s, s.openEncryption()
}

// EncryptionFile returns the path of the encryption configuration: the configured one, or the one that this server was given when it
// joined a cluster. "" means that there is none.
func (s *Stores) EncryptionFile() string {
	file := s.Config.EncryptionConfigFile
	if file == "" && s.Members != nil {
		given := filepath.Join(s.Config.DataDir, members.EncryptionFile)
		if _, err := os.Stat(given); err == nil {
			return given
		}
	}
	return file
}

// Join makes this server a member of a cluster, if it shall join one. The caller has locked the data directory.
func (s *Stores) Join(ctx context.Context, at members.Place) error {
	if s.Members == nil {
		return nil
	}
	if err := s.Members.Join(ctx, at); err != nil {
		return err
	}
	if s.Encryption == nil { // it may have been given a configuration
		return s.openEncryption()
	}
	return nil
}

// openEncryption applies the encryption configuration, if there is one.
func (s *Stores) openEncryption() (err error) {
	o := s.encryption
	if o.File = s.EncryptionFile(); o.File == "" {
		return nil
	}
	if !o.Reload {
		o.Read = filewatch.ReadFile
		s.Encryption, err = encrypt.Open(o)
		return err
	}
	_, err = s.Files.Load(reload.Part{
		Flag: "--encryption-provider-config", Path: o.File,
		Apply: func(read filewatch.Read) (err error) {
			if s.Encryption != nil {
				return s.Encryption.Reload(s.Files.Context(), read)
			}
			o.Read = read
			s.Encryption, err = encrypt.Open(o)
			return err
		},
		Observe: func(err error) { s.Encryption.CountReload(err) },
	})
	return err
}

// choose returns the backend for Storage.Backend. Besides it, only the default of the history and a fork compare
// that name. All other code uses the optional interfaces of the store.
func (s *Stores) choose() backend {
	switch s.Config.Backend {
	case config.StorageEtcd:
		return backend{cluster: "etcd-0", root: etcdRoot(&s.Config.Etcd), open: s.openClusters}
	case config.StorageMembers:
		s.Members = s.Options.Members()
		return backend{cluster: "etcd-0", root: etcdRoot(&s.Config.Etcd), check: s.Members.Check, open: s.openMember}
	case config.StorageMemory:
		return backend{cluster: "embedded", open: func(ctx context.Context) error {
			return s.openEmbedded(ctx, embedded.Options{InMemory: true})
		}}
	}
	return backend{
		cluster: "embedded",
		check:   s.checkSingle,
		open: func(ctx context.Context) error {
			r, err := copies.ReadRecord(datadir.CopyRecord(s.Config.DataDir), "")
			if err != nil {
				return err
			}
			return s.openEmbedded(ctx, embedded.Options{Dir: datadir.StoreDir(s.Config.DataDir), MinRevision: r.MinRevision})
		},
	}
}

// checkSingle returns an error if the data directory is not that of a single server.
func (s *Stores) checkSingle() error {
	if _, err := os.Stat(datadir.Member(s.Config.DataDir)); err == nil {
		return config.Errorf("{Storage.DataDir} has a member of a cluster; start it with {Storage.Backend}=%s", config.StorageMembers)
	}
	return datadir.NotRestoring(s.Config.DataDir)
}

// Check returns an error if the data directory must not be used. It writes nothing.
func (s *Stores) Check() error {
	if s.backend.check == nil {
		return nil
	}
	return s.backend.check()
}

// Open opens the stores and their caches.
func (s *Stores) Open(ctx context.Context) error {
	if err := s.backend.open(ctx); err != nil {
		return err
	}
	catchUp := cache.NewCatchUp(0)
	budget, shares := s.cacheMemory(), int64(0)
	for i := range s.Parts {
		s.Parts[i].share = max(s.Parts[i].share, 1)
		shares += s.Parts[i].share
	}
	for i := range s.Parts {
		p := &s.Parts[i]
		p.Cache = cache.New(cache.Options{
			Store: p.Store, Budget: budget / shares * p.share, IdleDrop: idleDrop, CatchUp: catchUp,
			Metrics: s.measured.Resource("", ""), Logger: s.Log,
		})
	}
	if s.Encryption != nil {
		s.Encryption.OnReload(func(dropped encrypt.Dropped) {
			for _, p := range s.Parts {
				p.Cache.RetryUnread()
			}
			s.Keys.Reloaded(dropped)
		})
	}
	s.Metrics.Register(storemetrics.CacheMemory(s.cacheUsage)...)
	s.Metrics.GaugeFunc("keelson_catchup_streams", "Number of open streams of old changes, which watches share that begin "+
		"before the log of the cache.", func() int64 { return int64(catchUp.Open()) })
	s.Metrics.GaugeFunc("keelson_catchup_waiting_watches", "Number of watches that wait for old changes.",
		func() int64 { return int64(catchUp.Waiting()) })
	s.Metrics.Register(storemetrics.Gauge("apiserver_storage_size_bytes",
		"[STABLE] Size of the storage database file physically allocated in bytes.", s.backend.cluster,
		func() int64 { return s.Main.Stats().SizeBytes }))
	if files, ok := s.Main.(storage.DamageCounter); ok {
		s.Metrics.Register(storemetrics.Gauge("apiserver_storage_damaged_files",
			"[ALPHA] Number of files of the store in which damage was met since it was opened.", s.backend.cluster,
			files.DamagedFiles))
	}
	if history, ok := s.Main.(storage.History); ok {
		s.Metrics.GaugeFunc("keelson_history_bytes", "Bytes of old versions that are kept for reads of the past, before compression.",
			func() int64 { return history.Kept().Bytes })
		s.Metrics.Register(storemetrics.GivenUp(history))
	}
	if disk, ok := s.Main.(storage.SpaceReporter); ok {
		s.Metrics.Register(storemetrics.Space(disk.Space)...)
	}
	return nil
}

// Warning returns what an operator must do about the store, "" if nothing. Requests that need no damaged data are
// served.
func (s *Stores) Warning() string {
	if files, ok := s.Main.(storage.DamageCounter); ok && files.DamagedFiles() > 0 {
		return "data on the disk is damaged, and requests that need it fail: stop the server, then keelson check says what is lost, and " +
			"keelson repair makes the rest usable"
	}
	if disk, ok := s.Main.(storage.SpaceReporter); ok && disk.Space().Low {
		return "the store refuses writes, because too little disk space is free"
	}
	if local, ok := s.Main.(*mirror.Store); ok && local.Mirror.Failing() != nil {
		return "this server cannot keep the past of the data (--local-state), and answers reads of it with an error; the log says why"
	}
	return ""
}

// mostShare is the share of a part whose objects are read a lot. The share of the part with Events is 1.
const mostShare = 7

// leastCacheMemory is the default of Storage.CacheMemory on machines with little memory, in bytes.
const leastCacheMemory = 32 << 20

// cacheMemory returns the memory that the caches may use together, in bytes.
func (s *Stores) cacheMemory() int64 {
	if n := int64(s.Config.CacheMemory); n > 0 {
		return n
	}
	if usable := pace.ReadMemory(os.DirFS("/")).Usable(); usable > 0 {
		return max(usable/4, leastCacheMemory)
	}
	return cache.DefaultBudget // the memory of the machine is unknown
}

// cacheUsage returns the memory of all caches.
func (s *Stores) cacheUsage() (sum cache.Usage) {
	for i := range s.Parts {
		u := s.Parts[i].Cache.Usage()
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
func (s *Stores) openEmbedded(ctx context.Context, options embedded.Options) (err error) {
	s.Main, err = s.openEngine(ctx, options)
	if err != nil {
		return err
	}
	s.Parts = []Part{{Store: s.Main, holds: func(*registry.Kind, string) bool { return true }}}
	return nil
}

func (s *Stores) openEngine(ctx context.Context, options embedded.Options) (store storage.Store, err error) {
	if s.OpenStore != nil {
		return s.OpenStore(ctx)
	}
	options.Image, options.Confirm = s.Image, s.Confirm
	options.Logger, options.HistoryWindow, options.OnFailure = s.Log, s.Config.HistoryWindow, s.failed
	options.Hold = s.Config.Backup.To != ""
	if options.Retention, err = retention.Parse(s.Config); err != nil {
		return nil, err
	}
	options.OnGroup = embedded.NewCommits(s.Metrics).Group
	s.adjust(&options)
	store, err = embedded.Open(options)
	switch {
	case errors.Is(err, embedded.ErrLocked):
		return nil, fmt.Errorf("the data directory %s is %w", s.Config.DataDir, datadir.ErrUsed)
	case err != nil:
		return nil, fmt.Errorf("cannot open the store: %w", err)
	}
	return store, nil
}

// adjust applies what only tests set.
func (s *Stores) adjust(o *embedded.Options) {
	if s.Clock != nil {
		o.Clock, o.SweepInterval = s.Clock.Now, testSweepInterval
	}
	if s.AdjustEngine != nil {
		s.AdjustEngine(o)
	}
}

func (s *Stores) failed(err error) { s.Fail(fmt.Errorf("the store failed: %w", err)) }

// eventsPrefix is the key prefix of Events. There are many of them, so they have a separate watch of etcd, which
// does not delay the events of other objects.
const eventsPrefix = registry.Root + "events/"

// openClusters connects to all etcd clusters.
func (s *Stores) openClusters(ctx context.Context) error {
	calls := etcd.NewMetrics(s.Metrics)
	overrides, err := ParseOverrides(s.Config.Etcd.Overrides)
	if err != nil {
		return err
	}
	c := &s.Config.Etcd
	certificate := reload.Pair{Flag: "--etcd-certfile", CertFile: c.CertFile, KeyFile: c.KeyFile}
	s.etcdTLS, err = s.Files.ClientTLS("--etcd-cafile", c.CAFile, certificate)
	if err != nil {
		return err
	}
	for i, o := range overrides {
		var store storage.Store
		cluster, err := s.openCluster(ctx, o.servers, calls)
		if store = cluster; err == nil && s.Config.HasLocalState() {
			store, err = s.openMirror(cluster, fmt.Sprintf("%s-%d", datadir.Mirror(s.Config.DataDir), i), nil)
		}
		if err != nil {
			return err
		}
		s.overridden = append(s.overridden, store)
		s.Parts = append(s.Parts, Part{Store: store, share: mostShare, holds: func(k *registry.Kind, _ string) bool {
			return slices.ContainsFunc(o.resources, func(gr schema.GroupResource) bool { return isOf(k, gr) })
		}})
	}
	store, err := s.openCluster(ctx, s.Config.Etcd.Servers, calls)
	if err != nil {
		return err
	}
	return s.useCluster(ctx, store)
}

// MembersHandler returns the handler of the membership, nil if this server is not one of a cluster.
func (s *Stores) MembersHandler() http.Handler {
	if s.Members == nil {
		return nil
	}
	return s.Members.Handler()
}

// openMember starts the member of this process.
func (s *Stores) openMember(ctx context.Context) error {
	own, err := s.Members.Start(ctx)
	if err != nil {
		return err
	}
	store, err := etcd.Open(ctx, s.clusterOptions(etcd.Options{Own: own, Recorder: etcd.NewMetrics(s.Metrics)}))
	if err != nil {
		return err
	}
	if err := s.useCluster(ctx, store); err != nil {
		return err
	}
	await := func(context.Context) error { return nil }
	if local, ok := s.Main.(*mirror.Store); ok {
		await = local.Mirror.Await
	}
	return s.Members.Settle(ctx, store, await)
}

// useCluster makes a cluster the main store.
func (s *Stores) useCluster(ctx context.Context, store *etcd.Store) error {
	s.Main = store
	add := func(part storage.Store, contains func(key string) bool) {
		p := Part{
			Store: part, whole: s.Main, share: mostShare, holds: func(_ *registry.Kind, prefix string) bool { return contains(prefix) },
		}
		if contains(eventsPrefix) {
			p.share = 1
		}
		s.Parts = append(s.Parts, p)
	}
	if !s.Config.HasLocalState() {
		for _, part := range store.Parts(eventsPrefix) {
			add(part, part.Contains)
		}
		return nil
	}
	local, err := s.openMirror(store, datadir.Mirror(s.Config.DataDir), s.Bucket)
	if err != nil {
		return err
	}
	s.Main = local
	// What is written before there is a mirror has no author and no time in it. It is made in a moment, unless the cluster is large.
	made, cancel := context.WithTimeout(ctx, mirrorWait)
	defer cancel()
	_ = local.Mirror.Await(made) // the mirror logs its errors
	for _, part := range local.Parts(eventsPrefix) {
		add(part, part.Contains)
	}
	return nil
}

// mirrorWait is how long the start waits for the mirror.
const mirrorWait = 2 * time.Second

// openMirror gives a cluster a mirror in a directory.
func (s *Stores) openMirror(store *etcd.Store, dir string, place bucket.Bucket) (*mirror.Store, error) {
	o := embedded.Options{Dir: dir, HistoryWindow: s.Config.HistoryWindow, Hold: place != nil, Logger: s.Log}
	var err error
	if o.Retention, err = retention.Parse(s.Config); err != nil {
		return nil, err
	}
	s.adjust(&o)
	mo := mirror.Options{Source: store, Bucket: place, Store: o, Now: s.Clock.Now, Log: s.Log}
	if s.Members != nil {
		mo.Another = s.Members.FetchPast
	}
	m := mirror.Open(mo)
	s.Members.SetPast(m)
	return mirror.NewStore(m), nil
}

func (s *Stores) openCluster(ctx context.Context, servers []string, calls etcd.Recorder) (*etcd.Store, error) {
	var dial func(context.Context, string, string) (net.Conn, error)
	if s.Egress.Has(egress.Etcd) { // without a proxy, the client opens connections itself
		dial = s.Egress.Dialer(egress.Etcd)
	}
	store, err := etcd.Open(ctx, s.clusterOptions(etcd.Options{Endpoints: servers, TLS: s.etcdTLS, Dial: dial, Recorder: calls}))
	if err != nil {
		return nil, config.Errorf("{Storage.Etcd.Servers}: %w", err)
	}
	return store, nil
}

// clusterOptions adds what all clusters have in common to options.
func (s *Stores) clusterOptions(o etcd.Options) etcd.Options {
	c := &s.Config.Etcd
	o.Prefix, o.CompactionInterval, o.PollInterval = etcdRoot(c), c.CompactionInterval, cmp.Or(c.DBMetricPollInterval, -1)
	o.LeaseReuse, o.Records, o.Now = c.LeaseReuse, s.Config.HasLocalState(), s.Clock.Now
	o.Logger, o.OnFailure = s.Log, s.failed
	return o
}

// isOf reports whether a kind is served as a resource.
func isOf(k *registry.Kind, gr schema.GroupResource) bool {
	inGroup := func(v registry.Version) bool { return v.Group != "" && v.Group == gr.Group }
	return k.Resource == gr.Resource && (k.Group == gr.Group || slices.ContainsFunc(k.Versions, inGroup))
}

// Registry returns the kinds bound to the stores.
func (s *Stores) Registry(kinds []*registry.Kind) (*registry.Registry, error) {
	reg, err := registry.NewPlaced(kinds, s.storePartOf, s.Clock.Now)
	if err == nil && s.Encryption != nil {
		reg.Transform(func(gr schema.GroupResource) registry.Transformer { return s.Encryption.Resource(gr) })
	}
	return reg, err
}

// storePartOf returns the part in which the resource of a kind is stored. prefix is the prefix of its keys.
func (s *Stores) storePartOf(k *registry.Kind, prefix string) registry.Backend {
	i := slices.IndexFunc(s.Parts, func(p Part) bool { return p.holds(k, prefix) })
	return registry.Backend{Store: s.Parts[i].Store, Whole: s.Parts[i].whole, Cache: s.Parts[i].Cache, Metrics: s.measured}
}

// Checks returns the health checks of the main store and of the overrides, with the names of kube-apiserver.
func (s *Stores) Checks() []health.Check {
	alive, ready := s.Config.Etcd.HealthcheckTimeout, s.Config.Etcd.ReadycheckTimeout
	list := []health.Check{
		{Name: "etcd", On: health.Everywhere, Probe: answers(s.Main, alive)},
		{Name: "etcd-readiness", On: health.Readyz, Probe: answers(s.Main, ready)},
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

// Exclusive reports whether no other process writes to the main store.
func (s *Stores) Exclusive() bool { return storage.IsExclusive(s.Main) }

// Cached is a probe that fails until the caches can serve reads.
func (s *Stores) Cached(ctx context.Context) error {
	ctx, cancel := within(ctx, s.Config.Etcd.ReadycheckTimeout)
	defer cancel()
	for _, p := range s.Parts {
		if _, err := p.Cache.Current(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the caches, then the stores, then the encryption. s may be nil.
func (s *Stores) Close() error {
	if s == nil {
		return nil
	}
	for _, p := range s.Parts {
		if p.Cache != nil {
			p.Cache.Close()
		}
	}
	var errs []error
	for _, store := range s.overridden {
		errs = append(errs, store.Close())
	}
	if s.Main != nil {
		errs = append(errs, s.Main.Close())
	}
	errs = append(errs, s.Members.Close())
	if s.Encryption != nil {
		errs = append(errs, s.Encryption.Close())
	}
	return errors.Join(errs...)
}

// Revisions returns the revision of each part of the stores.
func (s *Stores) Revisions(ctx context.Context) ([]int64, error) {
	out := make([]int64, len(s.Parts))
	for i, p := range s.Parts {
		var err error
		if out[i], err = p.Cache.Current(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}
