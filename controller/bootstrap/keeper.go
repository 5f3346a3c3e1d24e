package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/client"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/storage"
)

// interval is how often the objects are looked at. What was deleted comes back then.
const interval = 10 * time.Second

// Keeper makes the objects that describe the server and what it serves by, and
// keeps them while it runs. Roles are not among them.
type Keeper struct {
	Registry *registry.Registry
	Client   *client.Client
	Log      *slog.Logger
	Now      func() time.Time

	// Services are the ranges of service addresses. The Service kubernetes has the
	// first address of the first.
	Services []netip.Prefix
	// NodePort makes that Service one of type NodePort; 0 does not.
	NodePort int
	// Address is where others reach the server, Port its port.
	Address net.IP
	Port    int
	// Endpoints keeps the addresses of the servers behind the Service; nil does not.
	Endpoints Reconciler
	// Hostname is this machine's.
	Hostname string
	// Trust returns what extension API servers verify clients with. It may change.
	Trust func() AuthenticationTrust

	identity identity

	mu   sync.Mutex // held while endpoints are written
	left bool       // guarded by mu: this server is none of them any more
}

// Reconciler answers which servers serve the API. The endpoints of the Service
// kubernetes follow it.
type Reconciler interface {
	// Servers returns the addresses of all servers. This server is one of them from
	// then on, for some time.
	Servers(ctx context.Context) ([]string, error)
	// Leave takes this server out and returns the addresses of the others.
	Leave(ctx context.Context) ([]string, error)
}

// part is one kind of objects that a Keeper makes.
type part struct {
	name string
	do   func(context.Context) error
}

// parts are made when the server starts and kept while it runs. They depend on the namespaces and not on each other.
func (k *Keeper) parts() []part {
	return []part{
		{"flow control", k.ensureFlowControl},
		{"priority classes", k.priorityClasses},
		{"service kubernetes and its addresses", k.ensureServiceCIDRAndService},
		{"authorities for extension API servers", k.publishTrust},
		{"identity", k.renewLease},
	}
}

// Start makes what is missing. It returns when all is there.
func (k *Keeper) Start(ctx context.Context) error {
	var mu sync.Mutex // guards errs
	var errs []error
	var running sync.WaitGroup
	for _, p := range k.parts() {
		running.Go(func() {
			if err := p.do(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// Run keeps the objects until ctx ends or the store is closed.
func (k *Keeper) Run(ctx context.Context) {
	k.reconcileEndpoints(ctx)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, p := range k.parts() {
			err := p.do(ctx)
			if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
				return
			}
			if err != nil {
				k.Log.Warn("objects of the server itself: trying again later", "what", p.name, "error", err)
			}
		}
		k.reconcileEndpoints(ctx)
	}
}

// create makes an object. One that is there already is no error.
func (k *Keeper) create(ctx context.Context, gvr schema.GroupVersionResource, obj registry.Object, manager string) error {
	_, err := k.Client.As(manager).Create(ctx, client.CreateRequest{Resource: gvr, Object: obj})
	if kerrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// stored returns an object of the store, nil if there is none.
func stored[T registry.Object](ctx context.Context, k *Keeper, gvr schema.GroupVersionResource, namespace, name string) (T, bool, error) {
	var none T
	obj, err := k.Registry.Stored(ctx, gvr.GroupResource(), namespace, name)
	if err != nil || obj == nil {
		return none, false, err
	}
	typed, ok := obj.(T)
	if !ok {
		return none, false, fmt.Errorf("%s %s is a %T", gvr.Resource, name, obj)
	}
	return typed, true, nil
}

// update changes an object of the store.
func (k *Keeper) update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, manager string, change func(registry.Object) error) error {
	ref := client.Ref{Resource: gvr, Namespace: namespace, Name: name}
	_, err := k.Client.As(manager).Update(ctx, client.UpdateRequest{Ref: ref, Change: change})
	return err
}

// applyStatus applies a document to the status of an object, as manager and by force.
func (k *Keeper) applyStatus(ctx context.Context, gvr schema.GroupVersionResource, name, manager string, document []byte) error {
	_, err := k.Client.As(manager).Apply(ctx, client.ApplyRequest{
		Ref: client.Ref{Resource: gvr, Name: name}, Subresource: "status", Configuration: document, Force: true,
	})
	return err
}

// delete deletes an object.
func (k *Keeper) delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) error {
	_, err := k.Client.Delete(ctx, client.DeleteRequest{Ref: client.Ref{Resource: gvr, Namespace: namespace, Name: name}})
	return err
}
