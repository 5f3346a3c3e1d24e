// Package namespace deletes the content of namespaces that are being deleted, and then the namespaces, as the namespace
// controller of kube-controller-manager does.
//
// A namespace that is deleted stays with the phase Terminating as long as it has the finalizer "kubernetes" in its
// spec. The controller deletes all objects of all resources in it: built-in ones, custom resources, and those of
// extension API servers. The conditions of the namespace describe the objects that it could not delete or that have
// finalizers. When no objects remain, the controller removes the finalizer.
package namespace

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

const (
	// parallel is the number of namespaces that are processed concurrently.
	parallel = 10
	// A namespace that is not empty is processed again after firstDelay. The delay doubles up to maxDelay.
	firstDelay, maxDelay = 50 * time.Millisecond, 8 * time.Second
)

// Content lists and deletes the objects of a resource. *client.Client implements it for the resources of this server;
// another implementation sends requests to extension API servers.
type Content interface {
	ListMetadata(ctx context.Context, r client.ListRequest, yield func(client.Metadata) bool) (int64, error)
	DeleteCollection(ctx context.Context, r client.DeleteCollectionRequest) error
	Delete(ctx context.Context, r client.DeleteRequest) (gone bool, err error)
}

// Resources lists the served resources. *discovery.Handler implements it.
type Resources interface {
	Preferred() (resources []discovery.Resource, stale []schema.GroupVersion)
}

// Controller deletes namespaces.
type Controller struct {
	// Namespaces is the resource of that name.
	Namespaces *registry.Resource
	Client     *client.Client
	// Remote reaches the resources of extension API servers.
	Remote    Content
	Resources Resources
	// Ready waits until Resources has the custom resources that were defined before the start.
	Ready func(context.Context) error
	// Settle is the delay after the deletion of a namespace. Objects that are being created at that moment, in this
	// server or in others on the same store, are stored by then.
	Settle time.Duration
	Log    *slog.Logger
	// Now is time.Now if it is nil.
	Now func() time.Time
	// Metrics counts what happens in the queue.
	Metrics workqueue.MetricsProvider
	// Activity has the work of the controller; nil records nothing.
	Activity *activity.Part
}

func (c *Controller) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// content returns the Content through which the objects of a resource are reached.
func (c *Controller) content(r discovery.Resource) Content {
	if r.Remote {
		return c.Remote
	}
	return c.Client
}

// queue has the names of namespaces that are being deleted.
type queue = workers.Queue[string]

// Run works until ctx ends, or until following the namespaces fails.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.Ready(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	q := workers.New[string](workers.Options{
		Name: "namespace", FirstDelay: firstDelay, MaxDelay: maxDelay, Metrics: c.Metrics, Activity: c.Activity,
	})
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	tasks.Go(func() { q.Run(ctx, parallel, c.handle) })
	return ignoreEnd(ctx, c.follow(ctx, q))
}

// ignoreEnd returns err, or nil if ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// follow adds the namespaces that are being deleted to the queue, until there is an error.
func (c *Controller) follow(ctx context.Context, q *queue) error {
	cursor, err := workers.Begin(ctx, c.Namespaces, func(o *cache.Object) error {
		c.see(ctx, q, o)
		return nil
	})
	if err != nil {
		return err
	}
	c.Activity.Started()
	return workers.Follow(ctx, cursor, func(e *cache.Event) error {
		if e.Object != nil {
			c.see(ctx, q, e.Object)
		}
		return nil
	})
}

// see adds a namespace to the queue if it is being deleted. A namespace that cannot be read is added as well: the
// worker reads it again, and reports the error.
func (c *Controller) see(ctx context.Context, q *queue, o *cache.Object) {
	if readable, err := c.Namespaces.Reader.Readable(ctx, o); err == nil {
		if l, err := c.Namespaces.Decoder.Lifecycle(readable); err == nil && !l.Deleting {
			return
		}
	}
	q.AddAfter(o.Name, c.Settle)
}

// errNotEmpty means that a namespace has to be processed again.
var errNotEmpty = errors.New("the namespace is not empty yet")

// handle deletes the content of a namespace once. If it returns an error, the queue calls it again later.
func (c *Controller) handle(ctx context.Context, name string) error {
	var done bool
	err := workers.Protect(func() (err error) {
		done, err = c.sync(ctx, name)
		return err
	})
	switch {
	case ctx.Err() != nil || err == nil && done:
		return nil
	case err == nil:
		c.Log.Debug("a namespace that is being deleted is not empty yet", "namespace", name)
		return errNotEmpty
	}
	c.Log.Warn("deleting the content of a namespace failed; it will be tried again", "namespace", name, "error", err)
	return err
}

// sync deletes the content of a namespace once. It returns true if there is nothing more to do.
func (c *Controller) sync(ctx context.Context, name string) (done bool, err error) {
	obj, err := c.Client.Get(ctx, ref(name))
	if kerrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	n := obj.(*corev1.Namespace)
	if n.DeletionTimestamp == nil || len(n.Spec.Finalizers) == 0 {
		return true, nil
	}
	o := c.deleteContent(ctx, n)
	if ctx.Err() != nil {
		return false, ctx.Err() // the outcome is incomplete
	}
	errs := append(slices.Clone(o.failed), o.discoveryError(), c.report(ctx, n, o))
	if err := errors.Join(errs...); err != nil || o.estimate > 0 {
		return false, err
	}
	return true, c.finalize(ctx, n)
}

func ref(name string) client.Ref {
	return client.Ref{Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Name: name}
}

// errReplaced ends a write if the namespace was deleted and created again.
var errReplaced = errors.New("the namespace was replaced by another one of the same name")

// errSame ends a write that would change nothing.
var errSame = errors.New("nothing has changed")

// change changes a namespace or, with a subresource, the part that belongs to the subresource. It returns no error
// if the namespace no longer exists.
func (c *Controller) change(
	ctx context.Context, name string, uid types.UID, subresource string, change func(*corev1.Namespace) error,
) error {
	_, err := c.Client.Update(ctx, client.UpdateRequest{
		Ref: ref(name), Subresource: subresource,
		Change: func(obj registry.Object) error {
			if obj.GetUID() != uid {
				return errReplaced
			}
			return change(obj.(*corev1.Namespace))
		},
	})
	if kerrors.IsNotFound(err) || errors.Is(err, errReplaced) || errors.Is(err, errSame) {
		return nil
	}
	return err
}

// report writes the outcome to the conditions of the namespace.
func (c *Controller) report(ctx context.Context, n *corev1.Namespace, o *outcome) error {
	return c.change(ctx, n.Name, n.UID, "status", func(latest *corev1.Namespace) error {
		if !o.setConditions(&latest.Status, metav1.NewTime(c.now()).Rfc3339Copy()) {
			return errSame
		}
		return nil
	})
}

// finalize removes the finalizer of the controller. The namespace is then deleted if it has no other finalizers.
func (c *Controller) finalize(ctx context.Context, n *corev1.Namespace) error {
	return c.change(ctx, n.Name, n.UID, "finalize", func(latest *corev1.Namespace) error {
		latest.Spec.Finalizers = slices.DeleteFunc(latest.Spec.Finalizers, func(f corev1.FinalizerName) bool {
			return f == corev1.FinalizerKubernetes
		})
		return nil
	})
}
