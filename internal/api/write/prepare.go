package write

import (
	"context"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// prepare prepares the object for validation: it restores parts that the request cannot set from the old object, and
// applies the rules of the kind. For a deletion it decides what to do.
func (a *attempt) prepare(ctx context.Context) error {
	switch {
	case a.verb == Delete:
		a.prepareDeletion()
	case a.creates():
		a.prepareNew(ctx)
	default:
		a.prepareChange(ctx)
	}
	return nil
}

func (a *attempt) prepareNew(ctx context.Context) {
	removeDuplicateOwners(ctx, a.obj, "")
	s := a.strategy()
	if s.Status != nil && !s.StatusOnCreate {
		clearPart(s.Status(a.obj))
	}
	if s.Generation != nil {
		a.obj.SetGeneration(1)
	}
	if s.PrepareCreate != nil {
		s.PrepareCreate(ctx, a.obj)
	}
}

func (a *attempt) prepareChange(ctx context.Context) {
	obj, old, sub := a.obj, a.old(), a.Subresource
	removeDuplicateOwners(ctx, obj, " after mutating admission happens")
	obj.SetGeneration(old.GetGeneration())
	switch {
	case a.verb == Amend:
	case sub == nil || sub.Scale != nil:
		a.prepareMain()
	case sub.Status:
		a.prepareStatus()
	case sub.Update != nil && sub.Update.Prepare != nil:
		// The managedFields are final; a part may begin with those of the old object.
		owned := obj.GetManagedFields()
		sub.Update.Prepare(obj, old)
		obj.SetManagedFields(owned)
	}
	keepServerFields(obj, old)
}

func (a *attempt) prepareMain() {
	s, obj, old := a.strategy(), a.obj, a.old()
	if s.Status != nil {
		copyPart(s.Status(obj), s.Status(old))
	}
	if s.PrepareUpdate != nil {
		s.PrepareUpdate(obj, old)
	}
	if part := s.Generation; part != nil && !equalParts(part(obj), part(old)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

func (a *attempt) prepareStatus() {
	s, obj, old := a.strategy(), a.obj, a.old()
	if s.Spec != nil {
		copyPart(s.Spec(obj), s.Spec(old))
	}
	if s.StatusKeepsMeta {
		obj.SetLabels(old.GetLabels())
		obj.SetAnnotations(old.GetAnnotations())
		obj.SetOwnerReferences(old.GetOwnerReferences())
		obj.SetFinalizers(old.GetFinalizers())
	}
	if s.PrepareStatusUpdate != nil {
		s.PrepareStatusUpdate(obj, old)
	}
}

// keepServerFields brings back what a client cannot change.
func keepServerFields(obj, old registry.Object) {
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	if created := old.GetCreationTimestamp(); !created.IsZero() {
		obj.SetCreationTimestamp(created)
	}
	if t := old.GetDeletionTimestamp(); t != nil {
		obj.SetDeletionTimestamp(t)
	}
	if s := old.GetDeletionGracePeriodSeconds(); s != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(s)
	}
	obj.SetSelfLink("")
}

// wipeServerFields drops what a client cannot set on a new object.
func wipeServerFields(obj registry.Object) {
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetUID("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

// nameSuffix is the length of a generated name's random end; the name before it
// is cut so that both fit a DNS label.
const (
	nameSuffix   = 5
	maxGenerated = 63 - nameSuffix
)

func generatedName(base string) string {
	return base[:min(len(base), maxGenerated)] + utilrand.String(nameSuffix)
}

// checkNamespace puts the object in the namespace of the request. It fails if the object names another namespace.
func (a *attempt) checkNamespace() error {
	switch obj := a.obj; {
	case !a.Target.Kind.Namespaced:
		obj.SetNamespace("")
	case obj.GetNamespace() == a.Namespace:
	case obj.GetNamespace() == "":
		obj.SetNamespace(a.Namespace)
	default:
		return kerrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}
