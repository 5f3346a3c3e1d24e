package namespace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// finalizerSeconds is the expected time until objects with finalizers are gone.
const finalizerSeconds = 15

var pods = corev1.SchemeGroupVersion.WithResource("pods")

// found describes the remaining objects of one resource in a namespace.
type found struct {
	objects    int
	finalizers map[string]int
	estimate   int64 // see outcome.estimate
}

// maxFinalizers is the largest number of different finalizers of one resource that are counted. The conditions of
// the namespace contain them, and an extension API server must not make these arbitrarily long.
const maxFinalizers = 100

// count counts the finalizers of an object.
func (f *found) count(finalizers []string) {
	for _, name := range finalizers {
		if _, known := f.finalizers[name]; known || len(f.finalizers) < maxFinalizers {
			f.finalizers[name]++
		}
	}
}

// deleteContent makes one pass of deleting the objects in a namespace, and returns its outcome. While pods remain,
// it deletes nothing else: other objects, such as network policies, may protect something from them. In this case
// the conditions do not count the pods, as in kube-controller-manager.
func (c *Controller) deleteContent(ctx context.Context, n *corev1.Namespace) *outcome {
	o := &outcome{remaining: map[schema.GroupVersionResource]int{}, finalizers: map[string]int{}}
	resources, stale := c.Resources.Preferred()
	o.stale = stale
	resources = slices.DeleteFunc(resources, func(r discovery.Resource) bool {
		return !r.Namespaced || !slices.Contains(r.Verbs, "delete")
	})
	if i := slices.IndexFunc(resources, isPods); i >= 0 {
		_ = c.deleteResource(ctx, n, resources[i], o) // the error is also in o.failed
		if o.remaining[pods] > 0 || len(o.failed) > 0 {
			clear(o.remaining)
			clear(o.finalizers)
			return o
		}
		resources = slices.Delete(resources, i, i+1)
	}
	// The order changes from time to time, so that a resource that fails does not keep others from being tried.
	rand.Shuffle(len(resources), func(i, j int) { resources[i], resources[j] = resources[j], resources[i] })
	late := map[schema.GroupVersion]bool{}
	for _, r := range resources {
		if ctx.Err() != nil {
			o.failed = append(o.failed, ctx.Err())
			break
		}
		if late[r.GroupVersion()] {
			continue // a later attempt has another order and can reach this resource
		}
		err := c.deleteResource(ctx, n, r, o)
		late[r.GroupVersion()] = r.Remote && (kerrors.IsTimeout(err) || kerrors.IsTooManyRequests(err))
	}
	return o
}

func isPods(r discovery.Resource) bool { return r.GroupVersionResource == pods }

// deleteResource deletes the objects of one resource, and adds the remaining ones and the error to o.
func (c *Controller) deleteResource(ctx context.Context, n *corev1.Namespace, r discovery.Resource, o *outcome) error {
	left, err := c.deleteObjects(ctx, n, r)
	if err != nil {
		o.failed = append(o.failed, err)
	}
	o.estimate = max(o.estimate, left.estimate)
	if left.objects > 0 {
		o.remaining[r.GroupVersionResource] = left.objects
		for name, objects := range left.finalizers {
			o.finalizers[name] += objects
		}
	}
	return err
}

// deleteObjects deletes the objects of one resource, and returns the remaining ones.
func (c *Controller) deleteObjects(
	ctx context.Context, n *corev1.Namespace, r discovery.Resource,
) (left found, err error) {
	content := c.content(r)
	if isPods(r) {
		if left.estimate, err = c.podSeconds(ctx, n); err != nil {
			return left, err
		}
	}
	if r.Remote {
		if empty, err := isEmpty(ctx, content, n.Name, r); empty || err != nil {
			return left, err
		}
	}
	if err := deleteAll(ctx, content, n.Name, r); err != nil || !slices.Contains(r.Verbs, "list") {
		return left, err
	}
	left.finalizers = map[string]int{}
	list := client.ListRequest{Resource: r.GroupVersionResource, Namespace: n.Name}
	if _, err := content.ListMetadata(ctx, list, func(m client.Metadata) bool {
		left.objects++
		left.count(m.Finalizers)
		return true
	}); err != nil {
		return found{estimate: left.estimate}, err
	}
	switch {
	case left.estimate > 0:
	case len(left.finalizers) > 0:
		left.estimate = finalizerSeconds
	case left.objects > 0:
		return left, fmt.Errorf(
			"unexpected items still remain in namespace: %s for gvr: %v", n.Name, r.GroupVersionResource)
	}
	return left, nil
}

// isEmpty reports whether a resource is known to have no objects in a namespace. It is called before deletions of
// objects of extension API servers: if such a server cannot delete, only namespaces with objects of it have to
// wait.
func isEmpty(ctx context.Context, content Content, namespace string, r discovery.Resource) (bool, error) {
	if !slices.Contains(r.Verbs, "list") {
		return false, nil
	}
	empty := true
	list := client.ListRequest{Resource: r.GroupVersionResource, Namespace: namespace}
	_, err := content.ListMetadata(ctx, list, func(client.Metadata) bool {
		empty = false
		return false
	})
	return empty && err == nil, err
}

// deleteAll deletes all objects of a resource in a namespace, one by one if the resource cannot delete collections.
func deleteAll(ctx context.Context, content Content, namespace string, r discovery.Resource) error {
	ctx = request.WithReason(ctx, "namespace deleted: "+namespace)
	options := &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	if slices.Contains(r.Verbs, "deletecollection") {
		return content.DeleteCollection(ctx, client.DeleteCollectionRequest{
			Resource: r.GroupVersionResource, Namespace: namespace, Options: options,
		})
	}
	if !slices.Contains(r.Verbs, "list") {
		return nil
	}
	var names []string
	list := client.ListRequest{Resource: r.GroupVersionResource, Namespace: namespace}
	if _, err := content.ListMetadata(ctx, list, func(m client.Metadata) bool {
		names = append(names, m.Name)
		return true
	}); err != nil {
		return err
	}
	for _, name := range names {
		_, err := content.Delete(ctx, client.DeleteRequest{
			Ref:     client.Ref{Resource: r.GroupVersionResource, Namespace: namespace, Name: name},
			Options: options.DeepCopy(),
		})
		if err != nil && !kerrors.IsNotFound(err) && !kerrors.IsMethodNotSupported(err) {
			return err
		}
	}
	return nil
}

// podSeconds returns how long the pods of a namespace may take to end, counted from the deletion of the namespace; 0 if
// that time has passed.
func (c *Controller) podSeconds(ctx context.Context, n *corev1.Namespace) (seconds int64, err error) {
	_, err = c.Client.List(ctx, client.ListRequest{Resource: pods, Namespace: n.Name}, func(obj registry.Object) bool {
		pod := obj.(*corev1.Pod)
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if grace := pod.Spec.TerminationGracePeriodSeconds; !ended && grace != nil {
			seconds = max(seconds, *grace)
		}
		return true
	})
	if err == nil && c.now().Sub(n.DeletionTimestamp.Time) >= time.Duration(seconds)*time.Second {
		seconds = 0
	}
	return seconds, err
}
