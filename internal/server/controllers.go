package server

import (
	"context"
	"crypto"
	"crypto/x509"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/csrsigning"
	"github.com/keelson-dev/keelson/internal/controller/garbagecollector"
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
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/storage"
)

// The controllers of kube-controller-manager that run in the server, by the names that they have there.
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

// controllerAliases are the names that kube-controller-manager accepts beside those above.
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

// validateControllers returns what is wrong with Controllers.Names.
func (c *settings) validateControllers() []error {
	var errs []error
	for _, entry := range c.Controllers.Names {
		name := strings.TrimPrefix(entry, "-")
		if name != "*" && !slices.Contains(Controllers(), name) && controllerAliases[name] == "" {
			errs = append(errs, config.Errorf("{Controllers.Names}: %q is not in the list of known controllers: %s",
				name, strings.Join(Controllers(), ", ")))
		}
	}
	return errs
}

// controllers returns Controllers.Names, or its default. Where other servers write to the store (etcd), a
// kube-controller-manager usually runs that does most of the work.
func (c *settings) controllers(exclusive bool) []string {
	switch {
	case len(c.Controllers.Names) > 0:
		return c.Controllers.Names
	case exclusive:
		return []string{"*"}
	}
	return []string{serviceAccountController, resourceQuotaController}
}

// runsController reports whether a controller is switched on, by the rules of kube-controller-manager: the first entry
// that names it decides, and otherwise whether "*" is an entry. The entry "-*" has no effect but to make the list not
// empty. exclusive means that no other server writes to the store.
func (c *settings) runsController(name string, exclusive bool) bool {
	entries := c.controllers(exclusive)
	for _, entry := range entries {
		entry, off := strings.CutPrefix(entry, "-")
		if entry == name || controllerAliases[entry] == name {
			return !off
		}
	}
	return slices.Contains(entries, "*")
}

// How long the namespace controller waits after the deletion of a namespace, until creations that are in progress are
// stored: in this process, or in all servers on a store.
const (
	ownSettleTime    = 200 * time.Millisecond
	sharedSettleTime = 5 * time.Second
)

// startControllers starts the controllers that kube-controller-manager has as well, which pause while one runs, and the
// type checks of policies. They come last, so that their first work does not delay the start.
func (s *starting) startControllers() {
	if s.config.Controllers.PolicyTypeChecks {
		const name = "type checks of admission policies"
		part := s.work.Activity.Part(name)
		part.Starting()
		s.work.Go(name, background.Forever(s.api.policyStatus(s.log, part).Run))
	}
	exclusive := storage.IsExclusive(s.stores.main)
	if !slices.ContainsFunc(Controllers(), func(name string) bool { return s.config.runsController(name, exclusive) }) {
		return
	}
	gate := standby.New(s.registry.Resource(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}), s.log, s.config.Testing.Clock)
	queues := workers.NewMetrics(s.metrics)
	start := func(name string, make func(*activity.Part) background.Runner) {
		if s.config.runsController(name, exclusive) {
			part := s.work.Activity.Part("the " + name)
			gate.Track(part)
			run := withActivity(part, make(part))
			s.work.Go(name, func(ctx context.Context) error { return gate.While(ctx, run) })
		}
	}
	start(aggregationController, func(p *activity.Part) background.Runner {
		return (&rbaccontroller.Aggregation{
			Registry: s.registry, Client: s.api.client.As(rbaccontroller.AggregationManager), Log: s.log, Activity: p,
		}).Run
	})
	start(namespaceController, func(p *activity.Part) background.Runner { return s.namespaceController(queues, p).Run })
	if !s.config.Controllers.NoGarbageCollection {
		start(garbageCollector, func(p *activity.Part) background.Runner { return s.garbageCollector(queues, p) })
	}
	start(rootCAController, func(p *activity.Part) background.Runner {
		return (&rootca.Controller{
			Registry: s.registry, Client: s.controllerClient("root-ca-cert-publisher"), Roots: string(s.identity.roots),
			Log: s.log, Metrics: queues, Activity: p,
		}).Run
	})
	if s.config.ownClientAuthority() {
		start(signingController, func(p *activity.Part) background.Runner { return s.signingController(queues, p).Run })
	}
	if s.api.resources.FindOwn(storageversionmigrator.Resource) != nil { // not with an emulated version that has only betas
		start(migrationController, func(p *activity.Part) background.Runner { return s.migrationController(queues, p).Run })
	}
	start(ttlController, func(p *activity.Part) background.Runner {
		return (&ttlafterfinished.Controller{
			Client: s.controllerClient("ttl-after-finished-controller"), Log: s.log, Now: time.Now, Metrics: queues, Activity: p,
		}).Run
	})
	if !s.config.Controllers.NoDefaultServiceAccounts {
		start(serviceAccountController, func(p *activity.Part) background.Runner {
			return background.Forever((&serviceaccount.Controller{
				Registry: s.registry, Client: s.api.client, Log: s.log, Activity: p,
			}).Run)
		})
	}
	if !s.config.Controllers.NoQuotaUsage {
		start(resourceQuotaController, func(p *activity.Part) background.Runner {
			return background.Forever((&quota.Controller{
				Registry: s.registry, Resources: s.api.resources, Client: s.api.client, Log: s.log, Activity: p,
			}).Run)
		})
	}
	s.work.Go("lease of kube-controller-manager", background.Forever(gate.Run))
}

// withActivity returns a Runner whose part has nothing to do after its end, and starts again after an error.
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

func (s *starting) namespaceController(queues *workers.Metrics, p *activity.Part) *namespace.Controller {
	settle := sharedSettleTime
	if storage.IsExclusive(s.stores.main) {
		settle = ownSettleTime
	}
	const account = "namespace-controller"
	return &namespace.Controller{
		Namespaces: s.registry.Resource(corev1.Resource("namespaces")), Client: s.controllerClient(account),
		Remote: s.api.aggregator.Client(controllerUser(account)), Resources: s.api.discovery, Ready: s.api.custom.Ready,
		Settle: settle, Log: s.log, Now: s.config.Testing.Clock.Now, Metrics: queues, Activity: p,
	}
}

// migrationController returns the controller that writes objects again for StorageVersionMigrations.
func (s *starting) migrationController(queues *workers.Metrics, p *activity.Part) *storageversionmigrator.Controller {
	return &storageversionmigrator.Controller{
		Client: s.controllerClient(migrationController), Remote: s.api.aggregator.Client(controllerUser(migrationController)),
		Resources: s.api.discovery, Ready: s.api.custom.Ready,
		Log: s.log, Now: s.config.Testing.Clock.Now, Metrics: queues, Activity: p,
	}
}

// signingController returns the controller that signs client certificates with the server's own authority.
func (s *starting) signingController(queues *workers.Metrics, p *activity.Part) *csrsigning.Controller {
	now := s.config.Testing.Clock.Now
	return &csrsigning.Controller{
		Client: s.controllerClient("certificate-controller"), Log: s.log, Now: now, Metrics: queues, Activity: p,
		Sign: func(template *x509.Certificate, key crypto.PublicKey, lifetime time.Duration) ([]byte, error) {
			return s.identity.current.Load().Authority.Sign(template, key, time.Now(), lifetime)
		},
	}
}

// garbageCollector returns what runs the garbage collector until ctx ends.
func (s *starting) garbageCollector(queues *workers.Metrics, p *activity.Part) background.Runner {
	const account = "generic-garbage-collector"
	own := s.controllerClient(account)
	o := garbagecollector.Options{
		Client: own, Local: garbagecollector.Local{Client: own}, Remote: s.api.aggregator.Client(controllerUser(account)),
		Directory: s.api.resources, Resources: s.api.discovery, RemoteChanged: s.api.aggregator.Changed,
		Ready:    s.api.custom.Ready,
		Revision: s.registry.Resource(corev1.Resource("namespaces")).Reader.CurrentRevision,
		Log:      s.log, Now: s.config.Testing.Clock.Now, Metrics: queues, Activity: p,
	}
	return func(ctx context.Context) error { return garbagecollector.Run(ctx, o) }
}

// controllerUser returns the service account in whose name a controller of kube-controller-manager works. Admission
// sees it as the user of writes.
func controllerUser(account string) *request.User {
	return &request.User{
		Name:   "system:serviceaccount:kube-system:" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
	}
}

// controllerClient returns a client that works in the name of a controller.
func (s *starting) controllerClient(account string) *client.Client {
	return s.api.client.As("kube-controller-manager").For(controllerUser(account))
}
