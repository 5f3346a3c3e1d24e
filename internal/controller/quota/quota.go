// Package quota keeps the status of ResourceQuotas right: status.hard is spec.hard, and status.used is what the objects
// of the namespace use. The admission plug-in adds what new objects use when they are written. This controller counts
// again when a quota is new or its limits change, when objects are deleted or use less than before, and every five
// minutes. kube-controller-manager does the same.
//
// A count is written only if the quota has not changed since before the objects were read. A charge in the
// meantime changes the quota, so that the count is repeated and no charge is lost.
package quota

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/quota"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

const (
	// manager is the field manager of the status.
	manager = "kube-controller-manager"
	// settleTime is the time after which a quota with new limits is counted a second time. The plug-in did not
	// charge writes that began before the limits were in the status.
	settleTime = time.Second
	// recountEvery is the interval in which all quotas are counted again.
	recountEvery = 5 * time.Minute
	// maxTries limits how often a count is repeated at once because the quota has changed meanwhile.
	maxTries = 20
)

// Controller counts what objects use.
type Controller struct {
	Registry  *registry.Registry
	Resources *directory.Directory
	Client    *client.Client
	Log       *slog.Logger
	// Activity has the work of the controller; nil records nothing.
	Activity *activity.Part
}

// Run works until ctx is done or the store is closed.
func (c *Controller) Run(ctx context.Context) {
	workers.Restart(ctx, c.Log, "cannot watch resource quotas; will start again", c.Activity, c.watch)
}

// resourceQuotas are the quotas as a resource of the API.
func resourceQuotas() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("resourcequotas")
}

// open returns a resource in one of its versions, or nil if the resource is not served or not namespaced. The
// caller must call done.
func (c *Controller) open(ctx context.Context, r schema.GroupResource) (*registry.Served, func(), error) {
	versions := c.Resources.Versions(r.Group)
	slices.Sort(versions)
	for _, v := range versions {
		found := c.Resources.Find(r.WithVersion(v))
		if found == nil || found.Open == nil {
			continue
		}
		served, done, err := found.Open(ctx)
		switch {
		case err != nil:
			return nil, nil, err
		case served.Kind.Namespaced && !served.Resource.Virtual():
			return served, done, nil
		}
		done()
	}
	return nil, nil, nil
}

// errChanged means that a quota has changed since its usage was counted.
var errChanged = errors.New("the quota has changed since its usage was counted")

// count counts and stores the usage of a quota. It does nothing if the quota is gone.
func (c *Controller) count(ctx context.Context, key quotaKey) error {
	for tries := 0; ; tries++ {
		err := c.countOnce(ctx, key)
		if !errors.Is(err, errChanged) || tries == maxTries {
			return err
		}
	}
}

func (c *Controller) countOnce(ctx context.Context, key quotaKey) error {
	obj, err := c.Client.Get(ctx, client.Ref{Resource: resourceQuotas(), Namespace: key.namespace, Name: key.name})
	if err != nil {
		return ignoreNotFound(err)
	}
	q := obj.(*corev1.ResourceQuota)
	used, incomplete := c.usage(ctx, q)
	if quota.Equal(q.Status.Hard, q.Spec.Hard) && quota.Equal(q.Status.Used, used) && q.Status.Used != nil {
		return incomplete
	}
	_, err = c.Client.As(manager).Update(ctx, client.UpdateRequest{
		Ref:         client.Ref{Resource: resourceQuotas(), Namespace: key.namespace, Name: key.name},
		Subresource: "status",
		Change: func(latest registry.Object) error {
			if latest.GetResourceVersion() != q.ResourceVersion {
				return errChanged
			}
			latest.(*corev1.ResourceQuota).Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: used}
			return nil
		},
	})
	return errors.Join(ignoreNotFound(err), incomplete)
}

// usage returns the usage of the resources that a quota limits. If some resources cannot be counted, it also
// returns an error with the reason, and their usage is the one in the present status.
func (c *Controller) usage(ctx context.Context, q *corev1.ResourceQuota) (corev1.ResourceList, error) {
	hard := quota.Names(q.Spec.Hard)
	used := quota.Only(q.Status.Used, hard)
	var errs []error
	counted := corev1.ResourceList{}
	for _, r := range quota.Resources(q.Spec.Hard) {
		e := quota.New(r, c.Registry)
		if e == nil {
			continue
		}
		names, err := e.Tracked(ctx, q.Spec.Hard)
		if err == nil && len(names) > 0 {
			err = c.add(ctx, q, e, names, counted)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	for name, n := range counted {
		used[name] = n
	}
	return used, errors.Join(errs...)
}

// add adds the usage of the objects of one resource to counted. Nothing is added if there is an error or if the
// resource is not served.
func (c *Controller) add(
	ctx context.Context, q *corev1.ResourceQuota, e *quota.Evaluator, names []corev1.ResourceName,
	counted corev1.ResourceList,
) error {
	served, done, err := c.open(ctx, e.Resource)
	if err != nil || served == nil {
		return err
	}
	defer done()
	used := corev1.ResourceList{}
	for _, name := range names {
		used[name] = resource.Quantity{Format: resource.DecimalSI}
	}
	scopes := quota.Scopes(q)
	var n int64
	var failed error
	err = served.Resource.Reader.All(ctx, q.Namespace, func(o *cache.Object) bool {
		if e.OnlyCounts() {
			n++
			return true
		}
		failed = addObject(ctx, served, e, o, scopes, used)
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if e.OnlyCounts() && len(scopes) == 0 {
		for _, name := range e.Counts {
			used[name] = *resource.NewQuantity(n, resource.DecimalSI)
		}
	}
	quota.Add(counted, quota.Only(used, names))
	return nil
}

// addObject adds the usage of an object to used, if the object is in all scopes.
func addObject(
	ctx context.Context, served *registry.Served, e *quota.Evaluator, o *cache.Object,
	scopes []corev1.ScopedResourceSelectorRequirement, used corev1.ResourceList,
) error {
	obj, err := decode(ctx, served, o)
	if err != nil {
		return err
	}
	if in, err := e.InScopes(scopes, obj); err != nil || !in {
		return err
	}
	uses, err := e.Usage(ctx, obj)
	if err == nil {
		quota.Add(used, uses)
	}
	return err
}

func decode(ctx context.Context, served *registry.Served, o *cache.Object) (registry.Object, error) {
	o, err := served.Resource.Reader.Readable(ctx, o)
	if err != nil {
		return nil, err
	}
	return served.Resource.Decoder.Decode(ctx, o)
}
