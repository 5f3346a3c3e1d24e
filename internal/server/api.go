package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"maps"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/celvars"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/ownerpermissions"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/podsecurity"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/policies"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/webhooks"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/api/blockers"
	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/client/versions"
	"github.com/keelson-dev/keelson/internal/api/connection"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/api/rest"
	"github.com/keelson-dev/keelson/internal/api/undelete"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/controller/servicerepair"
	"github.com/keelson-dev/keelson/internal/gateway/aggregator"
	"github.com/keelson-dev/keelson/internal/gateway/filter/traffic"
	"github.com/keelson-dev/keelson/internal/gateway/peers"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/server/authentication"
	"github.com/keelson-dev/keelson/internal/server/authorization"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/components"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/reload"
	"github.com/keelson-dev/keelson/internal/server/storemetrics"
	"github.com/keelson-dev/keelson/internal/server/workloads"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// api serves resources: the kinds bound to the stores, the verbs, discovery and OpenAPI.
type api struct {
	registry  *registry.Registry
	writes    *write.Pipeline
	handler   *rest.Handler
	custom    *custom
	discovery *discovery.Handler
	claims    *servicerepair.Controller
	// resources is the directory of all served resources. client sends requests of the server itself to them.
	resources *directory.Directory
	client    *client.Client
	webhooks  *webhooks.Plugins
	calls     webhook.Options // how webhooks are reached
	policies  *policies.Plugins
	// aggregator forwards requests to extension API servers.
	aggregator *aggregator.Aggregator
	// proxyCertificate authenticates this server to extension API servers and peers; nil if there is none.
	proxyCertificate func() (*tls.Certificate, error)
	// peers forwards requests to other servers on the same store; nil without peers.
	peers   *peers.Peers
	cluster *connection.Network
}

// planner returns the Planner, which finds deleted objects that can be restored and plans the writes for it.
func (a *api) planner(authorizer authz.Authorizer, c *settings) *undelete.Planner {
	return &undelete.Planner{
		Resources: a.resources, Rights: history.Rights{Authorizer: authorizer, Registry: a.registry}, Now: c.Testing.Clock.Now,
		Discovered: func() ([]discovery.Resource, []schema.GroupVersion) { return a.discovery.Preferred() },
		OfKind:     func(gvk schema.GroupVersionKind) (discovery.Resource, bool) { return a.discovery.OfKind(gvk) },
		Elsewhere:  c.elsewhere,
	}
}

// close closes idle connections to nodes, pods and services. api may be nil.
func (a *api) close() {
	if a != nil && a.cluster != nil {
		a.cluster.Close()
	}
}

// fieldManager is the field manager of writes of the server itself.
const fieldManager = "kube-apiserver"

// apiOptions are the dependencies of api.
type apiOptions struct {
	config    *settings
	gates     features.Gates
	services  serviceRanges
	addresses addresses
	// frontProxy returns the certificate for extension API servers; it is used if identity.OwnFrontProxy.
	frontProxy     func() (*tls.Certificate, error)
	kinds          []*registry.Kind
	registry       *registry.Registry
	store          storage.Store // the main one
	authentication *authentication.Authentication
	authorization  *authorization.Authorization
	outgoing
	metrics *metrics.Metrics
	work    *background.Group // runs the work that keeps the configuration of admission current
	traffic *traffic.Traffic  // nil unless Testing.Record
	log     *slog.Logger
}

// addresses are the addresses of the server for clients, as host:port.
type addresses struct {
	local, advertised string // for clients on this machine, and for clients on others
}

// testPlugins returns the admission plug-ins that are for tests.
func (o *apiOptions) testPlugins() []admission.Plugin {
	list := slices.Clone(o.config.testPlugins)
	if o.traffic != nil {
		list = append(list, o.traffic.Plugin())
	}
	return list
}

// loadAdmission calls apply with the configuration of admission plug-ins, now and each time its files change.
func (o *apiOptions) loadAdmission(apply func(filewatch.Read) error) error {
	file := o.config.Admission.ConfigFile
	if file == "" {
		return apply(filewatch.ReadFile)
	}
	_, err := o.config.files.Load(reload.Part{Flag: "--admission-control-config-file", Path: file, Apply: apply})
	return err
}

// newAPI returns an api. It serves nothing and does not watch definitions of custom resources until the caller
// starts it.
func newAPI(ctx context.Context, o apiOptions) (*api, error) {
	a := &api{registry: o.registry, resources: directory.New()}
	answers := o.authorization.Answers()
	maps.Copy(answers, o.authentication.Answers())
	conditions := celvars.NewConditionMetrics(o.metrics)
	a.buildWebhooks(&o, conditions)
	a.policies = a.newPolicies(&o, conditions)
	chain, err := plugin.NewChain(&plugin.Options{
		Config: &o.config.Admission, Gates: o.gates, Registry: o.registry, Authorizer: o.authorization,
		Observer: admission.NewMetrics(o.metrics), Calls: o.calls, Webhooks: a.webhooks, Policies: a.policies, Log: o.log,
		PodSecurity: podsecurity.NewMetrics(o.metrics), Kinds: a.resourcesOfKind, CreateNamespace: a.createNamespace,
		Last: append(o.testPlugins(), o.authorization.GuardRoles(), o.authorization.GuardSigners(), a.policies.ParameterAccess()),
		Load: o.loadAdmission,
	})
	if err != nil {
		return nil, err
	}
	a.writes = write.New(o.registry, chain, o.authorization, o.config.Testing.Clock.Now)
	a.writes.IgnorePropagation = o.config.Controllers.NoGarbageCollection
	if a.cluster, err = newConnections(&o); err != nil {
		return nil, err
	}
	a.client = client.New(a.resources, a.writes, fieldManager)
	a.handler = rest.New(rest.Options{
		Undelete: a.planner(o.authorization, o.config),
		Now:      o.config.Testing.Clock.Now,
		Registry: o.registry, Writes: a.writes, Cluster: a.cluster, ConnectObserver: rest.NewConnectMetrics(o.metrics),
		ConnectionBytesPerSecond: o.config.Network.Connections.MaxBytesPerSecond,
		Authorizer:               o.authorization, Answers: answers,
		MinRequestTimeout: o.config.Requests.MinWatchTimeout,
		WatchCounter:      rest.NewWatchMetrics(o.metrics),
		Computed: map[schema.GroupResource]rest.Computed{
			{Resource: "componentstatuses"}: components.New(o.store, len(o.config.Storage.Etcd.Servers)).Statuses,
		},
		Blockers: &blockers.Finder{
			Kinds: o.kinds, Client: a.client, Webhooks: a.webhooks.Failing, Authorizer: o.authorization, Now: o.config.Testing.Clock.Now,
			Resources: func() ([]discovery.Resource, []schema.GroupVersion) { return a.discovery.Preferred() },
		},
		Created:                 a.created(&o),
		DeleteCollectionWorkers: o.config.Requests.DeleteCollectionWorkers,
		NameUnreadable:          o.gates.Enabled(features.AllowUnsafeMalformedObjectDeletion),
		CBOR:                    o.gates.Enabled(features.CBORServingAndStorage),
		WatchListGzip:           o.gates.Enabled(features.WatchListCompression),
	})
	a.resources.PutBuiltIn(o.registry, a.handler.BuiltIn)
	if a.aggregator, err = a.newAggregator(ctx, &o); err != nil {
		return nil, err
	}
	a.discovery = discovery.New(a.resources, a.aggregator, o.addresses.advertised)
	if a.custom, err = newCustom(&o, a); err != nil {
		return nil, err
	}
	a.discovery.SetCatchUp(a.custom.CatchUp)
	if a.claims, err = allocateServices(&o); err != nil {
		return nil, err
	}
	o.metrics.Register(storemetrics.Objects(a.objects), a.aggregator.Metrics(), a.discovery.Metrics())
	return a, nil
}

// buildWebhooks makes the plug-ins that call admission webhooks.
func (a *api) buildWebhooks(o *apiOptions, conditions *celvars.ConditionMetrics) {
	a.calls = o.calls
	a.calls.Resolve, a.calls.DialService = webhook.Resolver(resolveServices(o)), dialServices(o)
	a.webhooks = webhooks.New(webhooks.Options{
		Registry: o.registry, Versions: versions.New(a.resources), Calls: a.calls, Authorizer: o.authorization,
		Background: func(name string, run func(context.Context)) { o.work.Go(name, background.Forever(run)) },
		Metrics:    webhooks.NewMetrics(o.metrics, conditions), Log: o.log, Budget: o.config.Admission.WebhookBudget, Now: o.config.Now,
		ExcludeReviews: o.gates.Enabled(features.ExcludeAdmissionWebhookVirtualResources),
	})
}

// objects returns the number of stored objects of each resource in use.
func (a *api) objects() map[schema.GroupResource]int64 {
	counts := map[schema.GroupResource]int64{}
	for _, r := range a.registry.Resources() {
		if n, ok := r.Reader.Counted(); ok {
			counts[schema.GroupResource{Group: r.Kind.Group, Resource: r.Kind.Resource}] = int64(n)
		}
	}
	a.custom.Objects(func(group, resource string, n int, _ int64) {
		counts[schema.GroupResource{Group: group, Resource: resource}] = int64(n)
	})
	return counts
}

// resourcesOfKind returns the resources with objects of a kind.
func (a *api) resourcesOfKind(gvk schema.GroupVersionKind) []ownerpermissions.Resource {
	var out []ownerpermissions.Resource
	for _, r := range a.resources.Resources(gvk.GroupVersion()) {
		if r.Announced || r.Describe == nil {
			continue
		}
		for _, entry := range r.Describe() {
			if entry.Kind == gvk.Kind && entry.Name == r.GVR.Resource {
				out = append(out, ownerpermissions.Resource{GroupVersionResource: r.GVR, Namespaced: entry.Namespaced})
			}
		}
	}
	return out
}

// created returns the function that is called with each object that a client has created, nil if none is needed.
func (a *api) created(o *apiOptions) func(*http.Request, *registry.Served, *cache.Object) {
	if o.config.Controllers.NoWorkloadNotices {
		return nil
	}
	leases := o.registry.Resource(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"})
	return workloads.New(leases, a.client, o.log).Created
}

// createNamespace creates a namespace as the server itself, not as a user.
func (a *api) createNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := a.client.Create(request.WithUser(ctx, nil), client.CreateRequest{
		Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Object: namespace,
	})
	return err
}
