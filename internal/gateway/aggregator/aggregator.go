// Package aggregator serves the API group versions of extension API servers, which are registered by an APIService with
// a Service (https://kubernetes.io/docs/concepts/extend-kubernetes/api-extension/apiserver-aggregation/).
//
// An Aggregator follows the APIServices. Each of them that has a Service becomes a remote: it forwards requests
// (remote.go), checks whether the server can be reached and writes that to the status of the APIService
// (availability.go), and keeps the discovery (discovery.go) and OpenAPI documents (openapi.go) of the server. Only the
// requests for a server wait for it.
package aggregator

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/controller/serviceresolver"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
)

// Options are the dependencies of an Aggregator.
type Options struct {
	Registry *registry.Registry
	// Client writes the status of APIServices.
	Client *client.Client
	// Resolve finds the address of a Service.
	Resolve serviceresolver.Func
	// ByEndpoints means that Resolve returns addresses of endpoints, so that several tries may reach different
	// ones.
	ByEndpoints bool
	// Dial opens connections to Services; nil opens them directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Certificate returns the certificate that authenticates this server; nil means none.
	Certificate func() (*tls.Certificate, error)
	// RejectRedirects answers 502 to redirects of servers instead of sending them to the client.
	RejectRedirects bool
	// InFlight is the largest number of requests, other than watches, that wait for one server at a time. 0 means no limit.
	InFlight int64
	// ReadOnly means that another server looks at the extension API servers and writes the status of APIServices, which this one believes.
	ReadOnly bool
	Log      *slog.Logger
	// Now is the time of conditions; nil is time.Now.
	Now func() time.Time
}

// Aggregator knows the APIServices.
type Aggregator struct {
	o        Options
	informer *informer.Informer
	metrics  *Metrics

	// table is the routing table that requests read.
	table atomic.Pointer[table]
	// changes counts changes of the result of Registrations.
	changes changes

	mu       sync.Mutex // guards the fields below
	services map[string]*apiregistrationv1.APIService
	remotes  map[string]*remote // by the name of the APIService
	running  context.Context    // of the remotes; nil before Run
	tasks    sync.WaitGroup     // the loops of the remotes
}

// table has the remotes by version. It is immutable.
type table struct {
	remotes map[schema.GroupVersion]*remote
	ordered []*remote // by version, for documents
}

var apiServices = schema.GroupResource{Group: apiregistrationv1.GroupName, Resource: "apiservices"}

// New returns an Aggregator that has read the APIServices. The caller then has to call Run.
func New(ctx context.Context, o Options) (*Aggregator, error) {
	a := &Aggregator{
		o: o, services: map[string]*apiregistrationv1.APIService{}, remotes: map[string]*remote{},
	}
	if a.o.Now == nil {
		a.o.Now = time.Now
	}
	a.metrics = newMetrics(a.unavailable)
	a.table.Store(&table{})
	var err error
	a.informer, err = informer.Load(ctx, informer.Options{
		Resource: o.Registry.Resource(apiServices), Reset: a.reset, Apply: a.apply, Stored: true, Log: o.Log,
	})
	return a, err
}

// Metrics returns the metrics of the aggregator.
func (a *Aggregator) Metrics() *Metrics { return a.metrics }

// Run follows the APIServices and their servers until ctx ends.
func (a *Aggregator) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() { // also after a panic, so that a restart does not run two loops for a server
		cancel()
		a.mu.Lock()
		a.running = nil
		a.mu.Unlock()
		a.tasks.Wait()
	}()
	if !a.o.ReadOnly {
		a.runRemotes(ctx)
	}
	a.informer.Run(ctx)
}

// runRemotes starts the loops of the remotes, and lets reset and apply start those of others.
func (a *Aggregator) runRemotes(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running = ctx
	for _, r := range a.remotes {
		a.run(r)
	}
}

// run starts the loop of a remote. mu is held.
func (a *Aggregator) run(r *remote) {
	if a.running == nil {
		return
	}
	ctx, cancel := context.WithCancel(a.running)
	r.stop = cancel
	a.tasks.Go(func() { r.run(ctx) })
}

// reset replaces all APIServices by those in all.
func (a *Aggregator) reset(all []informer.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := map[string]bool{}
	for i := range all {
		kept[all[i].Name] = true
	}
	for name := range a.services {
		if !kept[name] {
			a.set(name, nil)
		}
	}
	a.take(all)
}

func (a *Aggregator) apply(changes []informer.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.take(changes)
}

// take applies changes of APIServices, and publishes the new routing table. mu is held.
func (a *Aggregator) take(changes []informer.Change) {
	for i := range changes {
		a.set(changes[i].Name, a.decode(&changes[i]))
	}
	t := &table{remotes: map[schema.GroupVersion]*remote{}}
	for _, r := range a.remotes {
		t.remotes[r.version] = r
		t.ordered = append(t.ordered, r)
	}
	slices.SortFunc(t.ordered, func(x, y *remote) int {
		return cmp.Or(cmp.Compare(x.version.Group, y.version.Group), cmp.Compare(x.version.Version, y.version.Version))
	})
	a.table.Store(t)
	a.changes.add()
}

// decode returns the APIService after a change, nil if it is gone or cannot be read. Most APIServices are served
// by this server itself. They are decoded with only their name and spec.
func (a *Aggregator) decode(c *informer.Change) *apiregistrationv1.APIService {
	if c.Stored == nil {
		return nil
	}
	s := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: c.Name}}
	spec, _, _, found, err := wire.Member(c.Stored.Data, "spec")
	if err == nil && found {
		err = json.Unmarshal(spec, &s.Spec)
	}
	if err == nil && s.Spec.Service == nil {
		return s
	}
	obj, err := a.o.Registry.Resource(apiServices).Decoder.Decode(context.Background(), c.Stored)
	if err != nil {
		a.o.Log.Error("an APIService cannot be read", "name", c.Name, "error", err)
		return nil
	}
	return obj.(*apiregistrationv1.APIService)
}

// set adds or replaces one APIService, or removes it if s is nil. mu is held.
func (a *Aggregator) set(name string, s *apiregistrationv1.APIService) {
	before := a.services[name]
	if s == nil {
		delete(a.services, name)
	} else {
		a.services[name] = s
	}
	r := a.remotes[name]
	if r != nil && s != nil && r.sameTarget(s) {
		r.observe(s)
		if before != nil && before.Spec.String() != s.Spec.String() {
			r.outdated.Store(true)
			r.checkSoon()
		}
		return
	}
	var next *remote
	if s != nil && s.Spec.Service != nil {
		next = newRemote(a, s) // a.remotes still has the old remote, whose budget of calls the new one may share
	}
	if r != nil {
		r.end()
		delete(a.remotes, name)
	}
	if s == nil {
		a.metrics.becameUnavailable.DeletePartialMatch(prometheus.Labels{"name": name})
	}
	if next == nil {
		return
	}
	if r != nil {
		next.keep(r)
	}
	a.remotes[name] = next
	a.run(next)
}

// Find returns the handler that forwards requests for a version of a group to its registered server, nil if there
// is no such server. It knows every APIService whose write this process has acknowledged.
func (a *Aggregator) Find(ctx context.Context, group, version string) http.Handler {
	if err := a.informer.SyncOwn(ctx); err != nil {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { apiresponse.Error(w, r, err) })
	}
	if found := a.table.Load().remotes[schema.GroupVersion{Group: group, Version: version}]; found != nil {
		return found
	}
	return nil
}

// Registrations implements discovery.Registrations.
func (a *Aggregator) Registrations() []discovery.Registration {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]discovery.Registration, 0, len(a.services))
	for name, s := range a.services {
		registration := discovery.Registration{
			GroupVersion:    schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version},
			GroupPriority:   int(s.Spec.GroupPriorityMinimum),
			VersionPriority: int(s.Spec.VersionPriority),
		}
		if r := a.remotes[name]; r != nil {
			registration.Remote = r.discovered.Load()
			if registration.Remote == nil {
				registration.Remote = &discovery.Remote{Stale: true}
			}
		}
		out = append(out, registration)
	}
	return out
}

// Changes returns a number that changes whenever the result of Registrations does.
func (a *Aggregator) Changes() int64 { return a.changes.count.Load() }

// Changed returns a channel that is closed when the result of Registrations changes the next time.
func (a *Aggregator) Changed() <-chan struct{} { return a.changes.next() }

// changes counts changes, and wakes goroutines that wait for the next one. The zero value has count zero.
type changes struct {
	count atomic.Int64

	mu      sync.Mutex    // guards changed
	changed chan struct{} // closed at the next change; nil if there are no waiters
}

func (c *changes) add() {
	c.count.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// unavailable reports whether each APIService is unavailable.
func (a *Aggregator) unavailable() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[string]bool, len(a.services))
	for name := range a.services {
		r := a.remotes[name]
		out[name] = r != nil && !r.available.Load()
	}
	return out
}
