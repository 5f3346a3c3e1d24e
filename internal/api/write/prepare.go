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
	switch change := a.change(); {
	case a.verb == Delete:
		a.prepareDeletion()
	case a.creates():
		change.prepareNew(ctx)
	default:
		change.prepareUpdate(ctx)
	}
	return nil
}

// A change is an object before and after a write, as the rules of its kind see it.
type change struct {
	target *registry.Served
	sub    *registry.Subresource // nil is the object itself
	amends bool                  // the write is an Amend
	old    registry.Object       // in the storage version, shared; nil for a new object
	obj    registry.Object       // in the storage version; the preparation changes it
}

// change returns what the write does to the object.
func (a *attempt) change() change {
	return change{target: a.Target, sub: a.Subresource, amends: a.verb == Amend, old: a.old(), obj: a.obj}
}

func (c change) strategy() *registry.UntypedStrategy { return &c.target.Kind.Strategy }

// ofMain reports whether the write changes the object itself, also through its Scale. A Scale has no rules of its
// own: replicas are a field of the spec, and change the generation.
func (c change) ofMain() bool { return c.sub == nil || c.sub.Scale != nil }

// prepareNew drops the status of a new object without an error, because clients send back whole objects that they
// have read, such as a backup.
func (c change) prepareNew(ctx context.Context) {
	removeDuplicateOwners(ctx, c.obj, "")
	s := c.strategy()
	if s.Status != nil && !s.StatusOnCreate {
		clearPart(s.Status(c.obj))
	}
	if s.Generation != nil {
		c.obj.SetGeneration(1)
	}
	if s.PrepareCreate != nil {
		s.PrepareCreate(ctx, c.obj)
	}
}

func (c change) prepareUpdate(ctx context.Context) {
	obj, old, sub := c.obj, c.old, c.sub
	removeDuplicateOwners(ctx, obj, " after mutating admission happens")
	// The generation is the server's: what the client sent is dropped without an error.
	obj.SetGeneration(old.GetGeneration())
	switch {
	case c.amends:
	case c.ofMain():
		c.prepareMain()
	case sub.Status:
		c.prepareStatus()
	case sub.Update != nil && sub.Update.Prepare != nil:
		// The managedFields are final at this step, but Prepare may replace them by those of the old object.
		owned := obj.GetManagedFields()
		sub.Update.Prepare(obj, old)
		obj.SetManagedFields(owned)
	}
	keepServerFields(obj, old)
}

// prepareMain compares for the generation after PrepareUpdate: fields that the kind drops, such as those of a
// disabled feature, do not count as changes.
func (c change) prepareMain() {
	s, obj, old := c.strategy(), c.obj, c.old
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

// prepareStatus restores the spec, and reports no error if the client has changed it: controllers send the whole
// object with its new status.
func (c change) prepareStatus() {
	s, obj, old := c.strategy(), c.obj, c.old
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

// warnings returns the warnings of the kind about the object.
func (c change) warnings() []string {
	s := c.strategy()
	switch {
	case s.Warn != nil && c.ofMain():
		return s.Warn(c.obj, c.old)
	case s.WarnStatus != nil && c.sub != nil && c.sub.Status:
		return s.WarnStatus(c.obj)
	}
	return nil
}

// keepServerFields restores the metadata fields that a client cannot change.
func keepServerFields(obj, old registry.Object) {
	// Another UID is kept, so that validation refuses it: the field is immutable. The same is true of the grace
	// period below.
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	if created := old.GetCreationTimestamp(); !created.IsZero() {
		obj.SetCreationTimestamp(created)
	}
	// A deletion cannot be undone: a body without the timestamp, or with another one, gets the old one.
	if t := old.GetDeletionTimestamp(); t != nil {
		obj.SetDeletionTimestamp(t)
	}
	if s := old.GetDeletionGracePeriodSeconds(); s != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(s)
	}
	// Servers have not set selfLink since Kubernetes 1.20 (KEP-1164), but old stored objects and clients may have
	// it.
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
// is cut so that both fit a DNS label. 63 is the limit of a DNS label (RFC 1123). The end is made of 27 letters
// and digits, without vowels: there are about 14 million ends.
const (
	nameSuffix   = 5
	maxGenerated = 63 - nameSuffix
)

func generatedName(base string) string {
	return base[:min(len(base), maxGenerated)] + utilrand.String(nameSuffix)
}

// inNamespace puts an object in the namespace of the request. It fails if the object names another namespace.
func inNamespace(kind *registry.Kind, obj registry.Object, namespace string) error {
	switch {
	case !kind.Namespaced:
		obj.SetNamespace("")
	case obj.GetNamespace() == namespace:
	case obj.GetNamespace() == "":
		obj.SetNamespace(namespace)
	default:
		return kerrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}
