package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

// interval is the time between two rounds. Deleted objects are created again then.
const interval = 10 * time.Second

// Keeper creates the objects that describe the server and the objects that it needs, and maintains them while it
// runs. Package internal/controller/rbac creates the roles and bindings.
type Keeper struct {
	Registry *registry.Registry
	Client   *client.Client
	Log      *slog.Logger
	Now      func() time.Time

	// Services are the address ranges of Services. The Service kubernetes has the first address
	// of the first range.
	Services []netip.Prefix
	// NodePort, unless 0, is the node port of the Service kubernetes. The Service then has the type NodePort.
	NodePort int
	// Port is the port at which clients reach this server.
	Port int
	// PeerAddress is the address, host:port, at which other servers on the same store can reach this server. It is
	// stored in the lease of this server, unless it is "".
	PeerAddress string
	// HasPeers means that there may be other servers on the same store. If it is true, a server that stops deletes
	// its lease.
	HasPeers bool
	// Endpoints returns the servers behind the Service; if nil, endpoints are not maintained.
	Endpoints Reconciler
	// Hostname is the host name of this machine.
	Hostname string
	// Trust returns the configuration with which extension API servers authenticate clients. It
	// may change while the server runs.
	Trust func() AuthenticationTrust

	identity identity

	mu   sync.Mutex // held while endpoints are written
	left bool       // guarded by mu: Leave was called
}

// Reconciler knows which servers serve the API. The endpoints of the Service kubernetes are
// set to its result.
type Reconciler interface {
	// Servers registers this server for some time, and returns the addresses of all servers.
	Servers(ctx context.Context) ([]string, error)
	// Leave removes this server and returns the addresses of the others.
	Leave(ctx context.Context) ([]string, error)
}

// part is a group of objects that a Keeper maintains.
type part struct {
	name string
	do   func(context.Context) error
	// isDefault is true if all objects of the part belong to Defaults.
	isDefault bool
}

// parts returns the parts in which a Keeper creates objects at the start and maintains them later. They depend on
// the namespaces and not on each other.
func (k *Keeper) parts() []part {
	return []part{
		{"flow control", k.ensureFlowControl, true},
		{"priority classes", k.priorityClasses, true},
		{"service kubernetes and its addresses", k.ensureServiceCIDRAndService, false},
		{"authorities for extension API servers", k.publishTrust, false},
		{"identity", k.renewLease, false},
	}
}

// Start creates the missing objects. It returns when all exist. defaultsExist is true if Defaults.Create has just
// created the objects of Defaults, so that Start need not check them.
func (k *Keeper) Start(ctx context.Context, defaultsExist bool) error {
	var mu sync.Mutex // guards errs
	var errs []error
	var running sync.WaitGroup
	for _, p := range k.parts() {
		if defaultsExist && p.isDefault {
			continue
		}
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

// Run maintains the objects until ctx is done or the store is closed.
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
				k.Log.Warn("cannot update the objects of the server; will try again", "what", p.name, "error", err)
			}
		}
		k.reconcileEndpoints(ctx)
	}
}

// create creates an object. It returns no error if the object exists already.
func (k *Keeper) create(
	ctx context.Context, gvr schema.GroupVersionResource, obj registry.Object, manager string,
) error {
	_, err := k.Client.As(manager).Create(ctx, client.CreateRequest{Resource: gvr, Object: obj})
	if kerrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// stored returns an object from the store, nil if it does not exist.
func stored[T registry.Object](
	ctx context.Context, k *Keeper, gvr schema.GroupVersionResource, namespace, name string,
) (T, bool, error) {
	var none T
	obj, err := k.Registry.Stored(ctx, gvr.GroupResource(), namespace, name)
	if err != nil || obj == nil {
		return none, false, err
	}
	typed, ok := obj.(T)
	if !ok {
		return none, false, fmt.Errorf("%s %s has the unexpected type %T", gvr.Resource, name, obj)
	}
	return typed, true, nil
}

// update changes an object in the store.
func (k *Keeper) update(
	ctx context.Context, gvr schema.GroupVersionResource, namespace, name, manager string,
	change func(registry.Object) error,
) error {
	ref := client.Ref{Resource: gvr, Namespace: namespace, Name: name}
	_, err := k.Client.As(manager).Update(ctx, client.UpdateRequest{Ref: ref, Change: change})
	return err
}

// applyStatus applies a document to the status of an object as the field manager.
func (k *Keeper) applyStatus(
	ctx context.Context, gvr schema.GroupVersionResource, name, manager string, document []byte,
) error {
	_, err := k.Client.As(manager).Apply(ctx, client.ApplyRequest{
		Ref: client.Ref{Resource: gvr, Name: name}, Subresource: "status", Configuration: document,
	})
	return err
}

// delete deletes an object.
func (k *Keeper) delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) error {
	_, err := k.Client.Delete(ctx, client.DeleteRequest{Ref: client.Ref{Resource: gvr, Namespace: namespace, Name: name}})
	return err
}
