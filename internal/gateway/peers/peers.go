// Package peers forwards requests to other API servers on the same store: requests for resources that this server does
// not serve but another one does, because the two are of different versions or have different flags. It is the Mixed
// Version Proxy of KEP-4020 (https://www.kubernetes.dev/resources/keps/4020/), as kube-apiserver 1.36 has it, and works
// with kube-apiserver in both directions.
//
// A peer is a server with an identity Lease in kube-system. Its address is in a record in the store (records.go), which
// no client of the API can write. Peers reads the discovery documents of each peer (fetch.go) once for each run of the
// peer. The documents are combined to a catalog (catalog.go), by which requests are forwarded (forward.go), and to the
// discovery document that clients get (merge.go).
package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
	"github.com/keelson-dev/keelson/internal/machinery/proxy"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

const (
	// The label of the identity Leases of API servers.
	leaseLabel, leaseValue = "apiserver.kubernetes.io/identity", "kube-apiserver"
	// serverName is the name that is verified in the certificate of a peer. Every API server has it.
	serverName = "kubernetes.default.svc"
	// checkEvery is the interval in which Peers checks whether the exclusions have changed.
	checkEvery = time.Second
	// firstRetry and lastRetry are the shortest and the longest time until the documents of a peer are read again
	// after a failure.
	firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second
	// maxFetches limits the number of peers that are read concurrently.
	maxFetches = 8
)

// Options are the dependencies of Peers.
type Options struct {
	// Server is the name of the identity Lease of this server.
	Server string
	// Leases is the resource of Leases, and Store has the records of servers.
	Leases *registry.Resource
	Store  storage.Store
	// Declared returns the versions that objects in the store declare (definitions of custom resources, APIServices with a
	// Service), and whether they have changed since the last call. It is called by one goroutine.
	Declared func() (versions map[schema.GroupVersion]bool, changed bool)
	// Certificate returns the front proxy certificate, by which peers recognize this server.
	Certificate func() (*tls.Certificate, error)
	// Dial opens connections; nil opens them directly.
	Dial proxy.Dial
	// InFlight is the largest number of requests, other than watches, that wait for peers at a time. 0 means no limit.
	InFlight int64
	Log      *slog.Logger
}

// Peers knows the other servers.
type Peers struct {
	o        Options
	informer *informer.Informer
	budget   *fairshare.Pool
	metrics  *Metrics

	// transport connects to peers. It is replaced when the authorities of their certificates change.
	transport atomic.Pointer[proxy.Transport]
	current   atomic.Pointer[catalog]
	changes   atomic.Int64  // counts the changes of current
	wake      chan struct{} // receives when there is something to do; its capacity is 1
	fetches   chan struct{} // has an element for each fetch that runs
	tasks     sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	peers    map[string]*peer
	excluded exclusions
	waiting  map[string]bool // the peers that were there at the start and were not asked yet
}

// peer is one other server. Peers.mu guards it.
type peer struct {
	holder   string    // of the Lease; another one for each run of the server
	document *document // nil before the first answer
	fetching bool
	failures int
	due      time.Time // when the documents are to be read; zero if they are current
}

// New returns a Peers that has read the Leases. The caller then has to call SetRoots and Run.
func New(ctx context.Context, o Options) (*Peers, error) {
	p := &Peers{
		o: o, budget: fairshare.NewPool(o.InFlight), metrics: newMetrics(), wake: make(chan struct{}, 1),
		fetches: make(chan struct{}, maxFetches), peers: map[string]*peer{}, waiting: map[string]bool{},
	}
	p.SetRoots(x509.NewCertPool())
	p.current.Store(newCatalog(nil, nil))
	var err error
	p.informer, err = informer.Load(ctx, informer.Options{
		Resource: o.Leases, Reset: p.reset, Apply: p.apply, Log: o.Log,
		Concerns: func(o, _ *cache.Object) bool { return o.Namespace == metav1.NamespaceSystem },
	})
	for name := range p.peers {
		p.waiting[name] = true
	}
	return p, err
}

// SetRoots replaces the authorities of the certificates of peers. Requests that begin later use no connection that was opened
// before; those in progress go on.
func (p *Peers) SetRoots(roots *x509.CertPool) {
	before := p.transport.Swap(proxy.NewTransport(proxy.TransportOptions{Dial: p.o.Dial, Pinned: true, TLS: &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: serverName, RootCAs: roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.o.Certificate() },
	}}))
	if before != nil {
		before.CloseIdle()
	}
}

// Metrics returns the metrics.
func (p *Peers) Metrics() *Metrics { return p.metrics }

// Ready returns an error until the documents of each peer that existed at the start were read once, or could not
// be read.
func (p *Peers) Ready(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) > 0 {
		return errors.New("the resources of other API servers are not known yet")
	}
	return nil
}

// Merge returns the groups of all servers. local are the groups of this one.
func (p *Peers) Merge(local []apidiscovery.APIGroupDiscovery) []apidiscovery.APIGroupDiscovery {
	return p.current.Load().merge(p.o.Server, local)
}

// Changes returns a number that changes whenever the result of Merge does.
func (p *Peers) Changes() int64 { return p.changes.Load() }

// reset replaces all Leases by those in all.
func (p *Peers) reset(all []informer.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := map[string]bool{}
	for i := range all {
		kept[all[i].Name] = all[i].Namespace == metav1.NamespaceSystem
	}
	for name := range p.peers {
		if !kept[name] {
			p.set(name, nil)
		}
	}
	p.take(all)
}

func (p *Peers) apply(changes []informer.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take(changes)
}

// take applies changes of Leases. mu is held.
func (p *Peers) take(changes []informer.Change) {
	for i := range changes {
		if c := &changes[i]; c.Namespace == metav1.NamespaceSystem {
			lease, _ := c.Object.(*coordinationv1.Lease)
			p.set(c.Name, lease)
		}
	}
}

// set adds or replaces the Lease of a server, or removes it if lease is nil. mu is held.
func (p *Peers) set(name string, lease *coordinationv1.Lease) {
	found := p.peers[name]
	if lease == nil || name == p.o.Server || lease.Labels[leaseLabel] != leaseValue || lease.Spec.HolderIdentity == nil {
		delete(p.waiting, name)
		if found != nil {
			delete(p.peers, name)
			p.publish()
		}
		return
	}
	if found == nil {
		found = &peer{}
		p.peers[name] = found
	}
	if holder := *lease.Spec.HolderIdentity; found.holder != holder {
		// Until the new document is read, requests use the old one: the new one is probably the same, and a 503 is more
		// useful than a 404.
		found.holder, found.failures, found.due = holder, 0, time.Now()
		p.wakeUp()
	}
}

// publish makes the catalog. mu is held.
func (p *Peers) publish() {
	documents := map[string]*document{}
	for name, found := range p.peers {
		if found.document != nil {
			documents[name] = found.document
		}
	}
	p.current.Store(newCatalog(documents, p.excluded.all()))
	p.changes.Add(1)
}

func (p *Peers) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run follows the peers until ctx ends.
func (p *Peers) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		p.tasks.Wait()
		p.transport.Load().CloseIdle()
	}()
	p.tasks.Go(func() { p.informer.Run(ctx) })
	for {
		next := p.work(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-time.After(time.Until(next)):
		}
	}
}

// work does what is due now and returns the time of the next call.
func (p *Peers) work(ctx context.Context, now time.Time) time.Time {
	versions, changed := p.o.Declared()
	p.mu.Lock()
	defer p.mu.Unlock()
	if changed {
		p.excluded.declare(versions, now)
		p.publish()
	}
	if expired := p.excluded.expire(now); len(expired) > 0 {
		p.forget(expired, now)
	}
	next := now.Add(checkEvery)
	for name, found := range p.peers {
		switch {
		case found.due.IsZero() || found.fetching:
		case found.due.After(now):
			if found.due.Before(next) {
				next = found.due
			}
		default:
			p.start(ctx, name, found)
		}
	}
	return next
}

// forget removes versions from all documents, which may be old, and marks all documents to be read again. mu is
// held.
func (p *Peers) forget(versions map[schema.GroupVersion]bool, now time.Time) {
	for _, found := range p.peers {
		if found.document != nil {
			found.document = found.document.without(versions)
		}
		found.due = now
	}
	p.publish()
}

// start reads the documents of a peer, in a goroutine. mu is held.
func (p *Peers) start(ctx context.Context, name string, found *peer) {
	select {
	case p.fetches <- struct{}{}:
	default:
		return // it is still due when another fetch ends
	}
	found.fetching, found.due = true, time.Time{}
	p.tasks.Go(func() {
		d, err := p.fetch(ctx, name)
		<-p.fetches
		if err != nil && ctx.Err() == nil {
			p.o.Log.Warn("cannot read the resources of another API server; will try again", "server", name, "error", err)
		}
		p.done(name, found, d, err)
		p.wakeUp()
	})
}

// done stores the result of a fetch.
func (p *Peers) done(name string, found *peer, d *document, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found.fetching = false
	delete(p.waiting, name)
	if err != nil {
		if next := time.Now().Add(retryAfter(found.failures)); found.due.IsZero() {
			found.due = next
		}
		found.failures++
		return
	}
	found.failures = 0
	found.document = d
	if p.peers[name] == found {
		p.publish()
	}
}

// retryAfter returns the time to the next try. failures is the number of failures before the last one.
func retryAfter(failures int) time.Duration {
	const doublings = 9 // more of them would be beyond lastRetry
	return min(firstRetry<<min(failures, doublings), lastRetry)
}
