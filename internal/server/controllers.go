package server

import (
	"context"
	"crypto"
	"crypto/x509"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/csrsigning"
	"github.com/keelson-dev/keelson/internal/controller/garbagecollector"
	"github.com/keelson-dev/keelson/internal/controller/gate"
	"github.com/keelson-dev/keelson/internal/controller/leader"
	"github.com/keelson-dev/keelson/internal/controller/namespace"
	"github.com/keelson-dev/keelson/internal/controller/quota"
	rbaccontroller "github.com/keelson-dev/keelson/internal/controller/rbac"
	"github.com/keelson-dev/keelson/internal/controller/rootca"
	"github.com/keelson-dev/keelson/internal/controller/serviceaccount"
	"github.com/keelson-dev/keelson/internal/controller/standby"
	"github.com/keelson-dev/keelson/internal/controller/storageversionmigrator"
	"github.com/keelson-dev/keelson/internal/controller/ttlafterfinished"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/identity"
	"github.com/keelson-dev/keelson/internal/storage"
)

// Controllers of kube-controller-manager that run in this server. They have the same names there.
const (
	signingController        = "certificatesigningrequest-signing-controller"
	aggregationController    = rbaccontroller.AggregationManager
	garbageCollector         = "garbage-collector-controller"
	namespaceController      = "namespace-controller"
	rootCAController         = "root-ca-certificate-publisher-controller"
	serviceAccountController = "serviceaccount-controller"
	resourceQuotaController  = "resourcequota-controller"
	migrationController      = storageversionmigrator.Name
	ttlController            = "ttl-after-finished-controller"
)

// controllerAliases are the names that kube-controller-manager accepts in addition to those above.
var controllerAliases = map[string]string{
	"csrsigning": signingController, "clusterrole-aggregation": aggregationController, "garbagecollector": garbageCollector, "namespace": namespaceController, "root-ca-cert-publisher": rootCAController,
	"serviceaccount": serviceAccountController, "resourcequota": resourceQuotaController,
	"svm": migrationController, "ttl-after-finished": ttlController,
}

// Controllers returns the names of the controllers that Controllers.Names can name, in order.
func Controllers() []string {
	return []string{
		signingController, aggregationController, garbageCollector, namespaceController, resourceQuotaController, rootCAController,
		serviceAccountController, migrationController, ttlController,
	}
}

// validateControllers returns the errors of Controllers.Names.
func (s *settings) validateControllers() []error {
	var errs []error
	for _, entry := range s.Controllers.Names {
		name := strings.TrimPrefix(entry, "-")
		if name != "*" && !slices.Contains(Controllers(), name) && controllerAliases[name] == "" {
			errs = append(errs, config.Errorf("{Controllers.Names}: %q is not in the list of known controllers: %s",
				name, strings.Join(Controllers(), ", ")))
		}
	}
	return errs
}

// controllers returns Controllers.Names, or its default. The default is shorter on etcd (expected is true): there, a
// kube-controller-manager usually runs and does most of the work.
func (s *settings) controllers(expected bool) []string {
	switch {
	case len(s.Controllers.Names) > 0:
		return s.Controllers.Names
	case !expected:
		return []string{"*"}
	}
	return []string{serviceAccountController, resourceQuotaController}
}

// runsController reports whether a controller is switched on, by the rules of kube-controller-manager: the first entry
// that names it decides, and otherwise whether "*" is an entry. The only effect of the entry "-*" is that the list is not
// empty. expected means that there usually is a kube-controller-manager.
func (s *settings) runsController(name string, expected bool) bool {
	entries := s.controllers(expected)
	for _, entry := range entries {
		entry, off := strings.CutPrefix(entry, "-")
		if entry == name || controllerAliases[entry] == name {
			return !off
		}
	}
	return slices.Contains(entries, "*")
}

// These are the times that the namespace controller waits after a namespace was deleted, so that creations in
// progress are stored first: those of this process only, or those of all servers on one store.
const (
	ownSettleTime    = 200 * time.Millisecond
	sharedSettleTime = 5 * time.Second
)

// controllers starts those controllers that kube-controller-manager also has. They pause while a kube-controller-manager runs, and while
// another server leads.
type controllers struct {
	controllersOptions
	exclusive bool // no other server writes to the store
	gate      gate.Gate
	queues    *workers.Metrics
}

// controllersOptions are the dependencies of controllers.
type controllersOptions struct {
	config   *settings
	registry *registry.Registry
	store    storage.Store // the main one
	api      *api
	identity *identity.Identity
	leader   *leader.Leader
	members  bool // the store is that of Keelson's own members of etcd: no kube-controller-manager runs without being told
	metrics  *metrics.Metrics
	work     *background.Group
	log      *slog.Logger
}

// startControllers starts the work that one of the servers on a store does. It comes last, so that its first work does not delay the
// start of the server.
func startControllers(o controllersOptions) {
	once := &gate.Gate{}
	o.leader.Guard(once)
	o.work.Go(servicesRunner, func(ctx context.Context) error { return once.While(ctx, background.Forever(o.api.claims.Run)) })
	if o.config.Controllers.PolicyTypeChecks {
		const name = "type checks of admission policies"
		part := o.work.Activity.Part(name)
		once.Track(part)
		checks := withActivity(part, background.Forever(o.api.policyStatus(o.log, part).Run))
		o.work.Go(name, func(ctx context.Context) error { return once.While(ctx, checks) })
	}
	c := &controllers{controllersOptions: o, exclusive: storage.IsExclusive(o.store)}
	if slices.ContainsFunc(Controllers(), c.runs) {
		c.queues = workers.NewMetrics(o.metrics)
		o.leader.Guard(&c.gate)
		other := standby.Follower{
			Leases: o.registry.Resource(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}),
			Free:   c.gate.Condition(), Log: o.log, Clock: o.config.Testing.Clock,
		}
		c.startAll()
		o.work.Go("lease of kube-controller-manager", background.Forever(other.Run))
	}
	if o.leader != nil {
		o.work.Go("lease of the leader", background.Forever(o.leader.Run))
	}
}

func (c *controllers) runs(name string) bool {
	return c.config.runsController(name, !c.exclusive && !c.members)
}

// start starts a controller, if it is switched on.
func (c *controllers) start(name string, make func(*activity.Part) background.Runner) {
	if c.runs(name) {
		part := c.work.Activity.Part("the " + name)
		c.gate.Track(part)
		run := withActivity(part, make(part))
		c.work.Go(name, func(ctx context.Context) error { return c.gate.While(ctx, run) })
	}
}

func (c *controllers) startAll() {
	c.start(aggregationController, func(p *activity.Part) background.Runner {
		return (&rbaccontroller.Aggregation{
			Registry: c.registry, Client: c.api.client.As(rbaccontroller.AggregationManager), Log: c.log, Activity: p,
		}).Run
	})
	c.start(namespaceController, func(p *activity.Part) background.Runner { return c.namespaceController(p).Run })
	if !c.config.Controllers.NoGarbageCollection {
		c.start(garbageCollector, func(p *activity.Part) background.Runner { return c.garbageCollector(p) })
	}
	c.start(rootCAController, func(p *activity.Part) background.Runner {
		return (&rootca.Controller{
			Registry: c.registry, Client: c.controllerClient("root-ca-cert-publisher"), Roots: string(c.identity.Roots),
			Log: c.log, Metrics: c.queues, Activity: p,
		}).Run
	})
	if identity.OwnClientAuthority(&c.config.Config) {
		c.start(signingController, func(p *activity.Part) background.Runner { return c.signingController(p).Run })
	}
	if c.api.resources.FindOwn(storageversionmigrator.Resource) != nil { // nil in releases that only had betas
		c.start(migrationController, func(p *activity.Part) background.Runner { return c.migrationController(p).Run })
	}
	c.start(ttlController, func(p *activity.Part) background.Runner {
		return (&ttlafterfinished.Controller{
			Client: c.controllerClient("ttl-after-finished-controller"), Log: c.log, Now: time.Now, Metrics: c.queues, Activity: p,
		}).Run
	})
	if !c.config.Controllers.NoDefaultServiceAccounts {
		c.start(serviceAccountController, func(p *activity.Part) background.Runner {
			return background.Forever((&serviceaccount.Controller{
				Registry: c.registry, Client: c.api.client, Log: c.log, Activity: p,
			}).Run)
		})
	}
	if !c.config.Controllers.NoQuotaUsage {
		c.start(resourceQuotaController, func(p *activity.Part) background.Runner {
			return background.Forever((&quota.Controller{
				Registry: c.registry, Resources: c.api.resources, Client: c.api.client, Log: c.log, Activity: p,
			}).Run)
		})
	}
}

// withActivity returns a Runner that reports to p: busy at its start, idle after its end, busy again if it ended
// with an error and will be restarted.
func withActivity(p *activity.Part, run background.Runner) background.Runner {
	return func(ctx context.Context) error {
		p.Starting()
		err := run(ctx)
		p.Stopped()
		if err != nil && ctx.Err() == nil {
			p.Starting()
		}
		return err
	}
}

func (c *controllers) namespaceController(p *activity.Part) *namespace.Controller {
	settle := sharedSettleTime
	if c.exclusive {
		settle = ownSettleTime
	}
	const account = "namespace-controller"
	return &namespace.Controller{
		Namespaces: c.registry.Resource(corev1.Resource("namespaces")), Client: c.controllerClient(account),
		Remote: c.api.aggregator.Client(controllerUser(account)), Resources: c.api.discovery, Ready: c.api.custom.Ready,
		Settle: settle, Log: c.log, Now: c.config.Testing.Clock.Now, Metrics: c.queues, Activity: p,
	}
}

// migrationController returns the controller that writes objects again for StorageVersionMigrations.
func (c *controllers) migrationController(p *activity.Part) *storageversionmigrator.Controller {
	return &storageversionmigrator.Controller{
		Client: c.controllerClient(migrationController), Remote: c.api.aggregator.Client(controllerUser(migrationController)),
		Resources: c.api.discovery, Ready: c.api.custom.Ready,
		Log: c.log, Now: c.config.Testing.Clock.Now, Metrics: c.queues, Activity: p,
	}
}

// signingController returns the controller that signs client certificates with the server's own authority.
func (c *controllers) signingController(p *activity.Part) *csrsigning.Controller {
	now := c.config.Testing.Clock.Now
	return &csrsigning.Controller{
		Client: c.controllerClient("certificate-controller"), Log: c.log, Now: now, Metrics: c.queues, Activity: p,
		Sign: func(template *x509.Certificate, key crypto.PublicKey, lifetime time.Duration) ([]byte, error) {
			return c.identity.Current().Authority.Sign(template, key, time.Now(), lifetime)
		},
	}
}

// garbageCollector returns the function that runs the garbage collector until ctx ends.
func (c *controllers) garbageCollector(p *activity.Part) background.Runner {
	const account = "generic-garbage-collector"
	own := c.controllerClient(account)
	o := garbagecollector.Options{
		Client: own, Local: garbagecollector.Local{Client: own}, Remote: c.api.aggregator.Client(controllerUser(account)),
		Directory: c.api.resources, Resources: c.api.discovery, RemoteChanged: c.api.aggregator.Changed,
		Ready:    c.api.custom.Ready,
		Revision: c.registry.Resource(corev1.Resource("namespaces")).Reader.CurrentRevision,
		Log:      c.log, Now: c.config.Testing.Clock.Now, Metrics: c.queues, Activity: p,
	}
	return func(ctx context.Context) error { return garbagecollector.Run(ctx, o) }
}

// controllerUser returns the service account under which kube-controller-manager runs a controller. Admission sees
// it as the user of the controller's writes.
func controllerUser(account string) *request.User {
	return &request.User{
		Name:   "system:serviceaccount:kube-system:" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
	}
}

// controllerClient returns a client that sends requests as the service account of a controller.
func (c *controllers) controllerClient(account string) *client.Client {
	return c.api.client.As("kube-controller-manager").For(controllerUser(account))
}
