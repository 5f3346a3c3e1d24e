package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// errInvalidOwner is the error of a cluster-scoped object with an owner in a namespace. Trying again does not help.
var errInvalidOwner = errors.New("a cluster-scoped object cannot have an owner in a namespace")

// unblockedPause is the time after which an object that no longer blocks its owners is checked again.
const unblockedPause = 500 * time.Millisecond

// checkObject deletes an object, or removes owner references or finalizers from it, if the state of its owners and
// dependents demands that.
func (c *Collector) checkObject(ctx context.Context, uid types.UID) error {
	o, ok := c.graph.object(uid)
	switch {
	case !ok:
		return nil // it is gone
	case o.deleting && o.foreground:
		return c.finishForeground(ctx, o)
	case o.deleting || len(o.owners) == 0:
		return nil
	}
	owners, err := c.classify(ctx, o)
	if err != nil {
		return err
	}
	switch {
	case owners.solid && len(owners.rest) == 0:
		return nil
	case owners.solid:
		// Without the references to waiting owners, these do not wait for the object any more.
		return c.removeOwners(ctx, o, owners.rest)
	case owners.waiting && o.dependents > 0:
		if c.graph.hasWaitingDependent(uid) {
			// The owners of the object wait for it, and so does one of its dependents: this may be a circle, in which
			// each object waits for the next one.
			if changed, err := c.unblockOwners(ctx, o); changed || err != nil {
				// Its owners no longer wait for it, so that they can be deleted first. kube-controller-manager
				// mostly has this order too.
				c.check.AddAfter(uid, unblockedPause)
				return err
			}
		}
		return c.delete(ctx, o, metav1.DeletePropagationForeground)
	case o.orphans:
		return c.delete(ctx, o, metav1.DeletePropagationOrphan)
	case o.foreground:
		return c.delete(ctx, o, metav1.DeletePropagationForeground)
	}
	return c.delete(ctx, o, metav1.DeletePropagationBackground)
}

// finishForeground removes the finalizer of an object that waits for its dependents, if none of them blocks its
// deletion.
func (c *Collector) finishForeground(ctx context.Context, o object) error {
	if c.isBlocked(o.uid) {
		return nil // it is checked again when the last blocking dependent is gone
	}
	if err := c.settle(ctx); err != nil {
		return err
	}
	if c.isBlocked(o.uid) {
		return nil
	}
	return c.removeFinalizer(ctx, o, metav1.FinalizerDeleteDependents)
}

// isBlocked reports whether dependents block the deletion of an object that waits for them.
func (c *Collector) isBlocked(uid types.UID) bool {
	blocked, e := c.graph.blocked(uid)
	c.apply(e)
	return blocked
}

// owners is the state of the owners of an object.
type owners struct {
	// solid means that at least one owner exists and does not wait for the deletion of its dependents. waiting
	// means that at least one owner exists and waits.
	solid, waiting bool
	// rest are the owners that are not solid.
	rest []types.UID
}

// classify reads the owners of an object.
func (c *Collector) classify(ctx context.Context, o object) (out owners, err error) {
	for i := range o.owners {
		ref := &o.owners[i]
		found, err := c.readOwner(ctx, o, ref)
		switch {
		case err != nil:
			return out, err
		case found == nil:
			out.rest = append(out.rest, ref.uid)
		case found.Deleting && slices.Contains(found.Finalizers, metav1.FinalizerDeleteDependents):
			out.waiting = true
			out.rest = append(out.rest, ref.uid)
		default:
			out.solid = true
		}
	}
	return out, nil
}

// readOwner returns the owner that a reference of an object names, nil if it does not exist.
func (c *Collector) readOwner(ctx context.Context, o object, ref *owner) (*client.Metadata, error) {
	id := identity{apiVersion: ref.apiVersion, kind: ref.kind, name: ref.name, uid: ref.uid}
	if c.graph.isAbsent(id) {
		return nil, nil
	}
	id.namespace = o.namespace
	if c.graph.isAbsent(id) {
		return nil, nil
	}
	gv, err := schema.ParseGroupVersion(ref.apiVersion)
	if err != nil {
		return nil, fmt.Errorf("the apiVersion of the owner %v is not valid: %w", id, err)
	}
	r, ok := c.Resources.OfKind(gv.WithKind(ref.kind))
	switch {
	case !ok:
		return nil, fmt.Errorf("the kind of the owner %v is not known", id)
	case !r.Namespaced:
		id.namespace = ""
	case o.namespace == "":
		return nil, errInvalidOwner
	}
	found, err := c.objects(r.Remote).GetMetadata(ctx, client.Ref{
		Resource: r.GroupVersionResource, Namespace: id.namespace, Name: ref.name,
	})
	switch {
	case isMissing(err, ref.name) || err == nil && found.UID != ref.uid:
		c.apply(c.graph.setAbsent(id))
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &found, nil
}

// isMissing reports whether an error means that an object of that name does not exist. An error without the name of the
// object may mean that the resource is not served at the moment, and that the object exists.
func isMissing(err error, name string) bool {
	status := kerrors.APIStatus(nil)
	if !kerrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == name
}

// ref returns the resource, the namespace and the name of an object, for requests.
func (o *object) ref() client.Ref {
	return client.Ref{Resource: o.resource, Namespace: o.namespace, Name: o.name}
}

// delete deletes an object if it has not changed since it was read. If it has changed, delete returns an error,
// and the object is checked again when the graph has the new state.
func (c *Collector) delete(ctx context.Context, o object, policy metav1.DeletionPropagation) error {
	conditions := &metav1.Preconditions{UID: &o.uid}
	if o.revision != 0 { // an extension API server may have versions that are not numbers
		conditions.ResourceVersion = new(strconv.FormatInt(o.revision, 10))
	}
	c.Log.Debug("garbage collection deletes an object",
		"resource", o.resource, "namespace", o.namespace, "name", o.name, "uid", o.uid, "policy", policy)
	_, err := c.objects(o.remote).Delete(request.WithReason(ctx, o.ownersGone()), client.DeleteRequest{
		Ref:     o.ref(),
		Options: &metav1.DeleteOptions{Preconditions: conditions, PropagationPolicy: &policy},
	})
	return ignoreNotFound(err)
}

// ownersGone returns the reason of the deletion that is recorded in the history of the object.
func (o *object) ownersGone() string {
	if len(o.owners) == 0 {
		return ""
	}
	first := o.owners[0]
	return fmt.Sprintf("owner deleted: %s %s (UID %s)", first.kind, first.name, first.uid)
}

func ignoreNotFound(err error) error {
	if kerrors.IsNotFound(err) {
		return nil
	}
	return err
}

// errNothingToDo ends a change of an object that has been replaced by another one, or that has nothing to change.
var errNothingToDo = errors.New("there is nothing to change")

// change changes the metadata of an object. The function change reports whether it has changed anything. If the
// object no longer exists, change returns no error.
func (c *Collector) change(ctx context.Context, o object, change func(registry.Object) bool) error {
	_, err := c.objects(o.remote).Update(ctx, client.UpdateRequest{
		Ref: o.ref(),
		Change: func(obj registry.Object) error {
			if obj.GetUID() != o.uid || !change(obj) {
				return errNothingToDo
			}
			return nil
		},
	})
	if errors.Is(err, errNothingToDo) {
		return nil
	}
	return ignoreNotFound(err)
}

// removeOwners removes references to owners from an object.
func (c *Collector) removeOwners(ctx context.Context, o object, uids []types.UID) error {
	return c.change(ctx, o, func(obj registry.Object) bool {
		before := obj.GetOwnerReferences()
		after := slices.DeleteFunc(slices.Clone(before), func(r metav1.OwnerReference) bool {
			return slices.Contains(uids, r.UID)
		})
		obj.SetOwnerReferences(after)
		return len(after) != len(before)
	})
}

// unblockOwners sets blockOwnerDeletion to false in all owner references of an object, as kube-controller-manager
// does, even in references without this field. It reports whether that changed anything.
func (c *Collector) unblockOwners(ctx context.Context, o object) (changed bool, err error) {
	err = c.change(ctx, o, func(obj registry.Object) bool {
		changed = false
		references := slices.Clone(obj.GetOwnerReferences())
		for i := range references {
			if b := references[i].BlockOwnerDeletion; b == nil || *b {
				references[i].BlockOwnerDeletion = new(bool)
				changed = true
			}
		}
		obj.SetOwnerReferences(references)
		return changed
	})
	return changed, err
}

// removeFinalizer removes a finalizer from an object.
func (c *Collector) removeFinalizer(ctx context.Context, o object, name string) error {
	return c.change(ctx, o, func(obj registry.Object) bool {
		before := obj.GetFinalizers()
		after := slices.DeleteFunc(slices.Clone(before), func(f string) bool { return f == name })
		obj.SetFinalizers(after)
		return len(after) != len(before)
	})
}
