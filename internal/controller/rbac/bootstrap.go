// Package rbac creates and maintains the default roles and bindings of a cluster, and sets the
// rules of aggregated ClusterRoles.
package rbac

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/rbac/policy"
	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

const (
	// concurrentWrites is the number of objects that are written concurrently, so that the store can sync them
	// together.
	concurrentWrites = 64
)

// Client reads and writes objects. client.Client implements it.
type Client interface {
	Create(ctx context.Context, r client.CreateRequest) (registry.Object, error)
	Update(ctx context.Context, r client.UpdateRequest) (registry.Object, error)
	Delete(ctx context.Context, r client.DeleteRequest) (gone bool, err error)
}

// Bootstrap creates the missing default roles and bindings, and adds what is missing to the
// existing ones, unless their annotation rbac.authorization.kubernetes.io/autoupdate is
// "false".
type Bootstrap struct {
	// Gates decide which roles there are.
	Gates    features.Gates
	Registry *registry.Registry
	Client   Client
	Log      *slog.Logger
}

// key identifies a role, cluster role, role binding or cluster role binding.
type key struct{ resource, namespace, name string }

func (k key) ref() client.Ref {
	return client.Ref{Resource: rbacv1.SchemeGroupVersion.WithResource(k.resource), Namespace: k.namespace, Name: k.name}
}

// Run returns when all objects are up to date.
func (b *Bootstrap) Run(ctx context.Context) error {
	wanted, err := policy.Objects(b.Gates)
	if err != nil {
		return err
	}
	there, err := b.load(ctx)
	if err != nil {
		return err
	}
	carried, err := there.legacyObjects(ctx, wanted)
	if err != nil {
		return err
	}
	return b.each(wanted, func(obj registry.Object) error {
		k := keyOf(obj)
		if old := carried[k]; old != nil {
			if err := b.create(ctx, old); err != nil && !kerrors.IsAlreadyExists(err) {
				return err
			}
			return b.addMissing(ctx, k, obj)
		}
		found, err := there.find(ctx, k)
		switch {
		case err != nil:
			return err
		case found == nil:
			return b.ensure(ctx, obj)
		}
		return b.reconcile(ctx, found, obj)
	})
}

// state has the stored objects at the start of the server, by resource.
type state map[string]part

type part struct {
	resource *registry.Resource
	objects  map[string]*cache.Object // by storage key
}

func (b *Bootstrap) load(ctx context.Context) (state, error) {
	there := state{}
	for _, name := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		r := b.Registry.Resource(rbacv1.Resource(name))
		objects := map[string]*cache.Object{}
		if err := r.Reader.All(ctx, "", func(o *cache.Object) bool {
			objects[o.Key] = o
			return true
		}); err != nil {
			return nil, err
		}
		there[name] = part{r, objects}
	}
	return there, nil
}

// find returns an object, nil if it does not exist.
func (s state) find(ctx context.Context, k key) (registry.Object, error) {
	p := s[k.resource]
	o, ok := p.objects[p.resource.Key(k.namespace, k.name)]
	if !ok {
		return nil, nil
	}
	return p.resource.Decoder.Decode(ctx, o)
}

func keyOf(obj registry.Object) key {
	return key{resourceOf(obj), obj.GetNamespace(), obj.GetName()}
}

func resourceOf(obj registry.Object) string {
	switch obj.(type) {
	case *rbacv1.ClusterRole:
		return "clusterroles"
	case *rbacv1.ClusterRoleBinding:
		return "clusterrolebindings"
	case *rbacv1.Role:
		return "roles"
	}
	return "rolebindings"
}

// each calls do for all objects, several at a time.
func (b *Bootstrap) each(objs []registry.Object, do func(registry.Object) error) error {
	errs := make([]error, len(objs))
	slots := make(chan struct{}, concurrentWrites)
	var running sync.WaitGroup
	for i, obj := range objs {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			if err := do(obj); err != nil {
				k := keyOf(obj)
				errs[i] = fmt.Errorf("unable to reconcile %s.%s/%s: %w", k.resource, rbacv1.GroupName, k.name, err)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func (b *Bootstrap) create(ctx context.Context, obj registry.Object) error {
	_, err := b.Client.Create(ctx,
		client.CreateRequest{Resource: rbacv1.SchemeGroupVersion.WithResource(resourceOf(obj)), Object: obj})
	return err
}

// ensure creates a missing object. It is not an error if another server has just created it.
func (b *Bootstrap) ensure(ctx context.Context, wanted registry.Object) error {
	err := b.create(ctx, wanted)
	if kerrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// reconcile updates an existing object.
func (b *Bootstrap) reconcile(ctx context.Context, found, wanted registry.Object) error {
	copied, ok := found.DeepCopyObject().(registry.Object)
	if !ok || !addMissing(copied, wanted) && sameRole(found, wanted) {
		return nil
	}
	k := keyOf(wanted)
	switch {
	case isProtected(found):
		b.Log.Warn("a default role or binding has missing rules, but its annotation forbids changes",
			"resource", k.resource, "namespace",
			k.namespace, "name", k.name)
		return nil
	case sameRole(found, wanted):
		return b.addMissing(ctx, k, wanted)
	}
	// The roleRef of a binding is immutable, so the binding is deleted and created again.
	options := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(found.GetUID()))}
	_, err := b.Client.Delete(ctx, client.DeleteRequest{Ref: k.ref(), Options: options})
	if err != nil && !kerrors.IsNotFound(err) {
		return err
	}
	return b.ensure(ctx, wanted)
}

// addMissing adds the missing entries to a stored object.
func (b *Bootstrap) addMissing(ctx context.Context, k key, wanted registry.Object) error {
	_, err := b.Client.Update(ctx, client.UpdateRequest{Ref: k.ref(), Change: func(obj registry.Object) error {
		if !isProtected(obj) {
			addMissing(obj, wanted)
		}
		return nil
	}})
	return err
}
