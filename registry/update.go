package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/storage"
)

// Current is the object that an update starts from.
type Current struct {
	// Object is nil if there is none.
	Object *cache.Object
	r      *Resource
	old    Object
}

// Exists says whether there is an object.
func (c *Current) Exists() bool { return c.Object != nil }

// As returns the object in version v. It is shared and must not be changed.
func (c *Current) As(v *Version) (Object, error) {
	if v.FromStorage == nil {
		return c.old, nil
	}
	return c.r.decodeAs(c.Object, v)
}

// Stored returns the object in the storage version, nil if there is none. It is
// shared and must not be changed.
func (c *Current) Stored() Object { return c.old }

// Decode makes the object in the storage version; the caller owns it.
func (c *Current) Decode() (Object, error) { return c.r.Decode(c.Object) }

// UpdateOptions are the options of an update.
type UpdateOptions struct {
	DryRun bool
	Admit  Admit
	Group  string
	// Subresource is what the update is through: nil is the main resource.
	Subresource *Subresource
	// Create lets the update make a missing object although the kind does not
	// (server-side apply).
	Create bool
	// CreateAdmit is called in place of Admit when the update creates.
	CreateAdmit Admit
	// CheckUID makes a UID in the new object a precondition (PUT).
	CheckUID bool
	// Raw skips the kind's hooks: the server changes its own object.
	Raw bool
	// companions are written with the object; conflicts are those of earlier attempts.
	companions Companions
	conflicts  []*storage.ConflictError
}

// Update changes an object by change, which is given the current one and returns
// the new one in the storage version. After a concurrent change it is called
// again.
func (r *Resource) Update(ctx context.Context, namespace, name string, o UpdateOptions, change func(*Current) (Object, error)) (Result, error) {
	key := r.Key(namespace, name)
	found, err := r.current(ctx, key)
	if err != nil {
		return Result{}, err
	}
	for {
		result, err := r.tryUpdate(ctx, namespace, name, found, o, change)
		conflict := (*storage.ConflictError)(nil)
		if !errors.As(err, &conflict) {
			return result, err
		}
		if r.companion(conflict) {
			if err := ctx.Err(); err != nil {
				return Result{}, err
			}
			o.conflicts = append(o.conflicts, conflict)
			continue
		}
		found = nil
		if conflict.Current.ModRevision != 0 {
			if found, err = r.objectOf(ctx, key, conflict.Current.Value, conflict.Current.ModRevision); err != nil {
				return Result{}, err
			}
		}
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
	}
}

func (r *Resource) tryUpdate(ctx context.Context, namespace, name string, found *cache.Object, o UpdateOptions, change func(*Current) (Object, error)) (Result, error) {
	gr := r.groupResource(o.Group)
	if found == nil && !o.Create && !r.Kind.CreateOnUpdate || found == nil && o.Subresource != nil {
		return Result{}, kerrors.NewNotFound(gr, name)
	}
	current := &Current{Object: found, r: r}
	if found != nil {
		var err error
		if found, err = r.Readable(ctx, found); err != nil {
			return Result{}, err
		}
		current.Object = found
		if current.old, err = r.Decode(found); err != nil {
			return Result{}, err
		}
	}
	old := current.old
	obj, err := change(current)
	if err != nil {
		return Result{}, err
	}
	if found == nil {
		return r.createByUpdate(ctx, namespace, obj, o)
	}
	if err := r.checkUID(gr, found, obj, old, o); err != nil {
		return Result{}, err
	}
	if err := r.checkVersion(gr, name, obj, found.Revision); err != nil {
		return Result{}, err
	}
	if err := r.allocateChange(ctx, obj, old, &o); err != nil {
		return Result{}, err
	}
	if err := r.beforeUpdate(ctx, namespace, obj, old, o); err != nil {
		return Result{}, err
	}
	if o.Admit != nil {
		if err := o.Admit(ctx, obj, old); err != nil {
			return Result{}, err
		}
	}
	if r.deletableNow(obj) && !o.Raw {
		return r.removeAfterUpdate(ctx, found, obj, o)
	}
	if o.DryRun {
		obj.SetResourceVersion(strconv.FormatInt(found.Revision, 10))
		return r.dryResult(found.Key, obj)
	}
	return r.replaceWith(ctx, found, obj, o.companions)
}

func (r *Resource) createByUpdate(ctx context.Context, namespace string, obj Object, o UpdateOptions) (Result, error) {
	// A resourceVersion on an object that a PUT creates is ignored, as the
	// reference does.
	obj.SetResourceVersion("")
	result, err := r.Create(ctx, namespace, obj, CreateOptions{DryRun: o.DryRun, Admit: o.CreateAdmit, Group: o.Group, orUpdate: true})
	result.Created = true
	return result, err
}

// replace stores obj in place of found, unless nothing would change.
func (r *Resource) replace(ctx context.Context, found *cache.Object, obj Object) (Result, error) {
	return r.replaceWith(ctx, found, obj, Companions{})
}

// replaceWith is replace in one transaction with what was allocated.
func (r *Resource) replaceWith(ctx context.Context, found *cache.Object, obj Object, companions Companions) (Result, error) {
	value, err := r.codec.encode(obj)
	if err != nil {
		return Result{}, err
	}
	same, err := r.codec.read(value, found.Revision)
	if err != nil {
		return Result{}, err
	}
	if bytes.Equal(same.Data, found.Data) {
		if stale, err := r.stale(ctx, found); err != nil || !stale {
			return Result{Object: found}, err
		}
	}
	item, err := r.preview(value)
	if err != nil {
		// What could not be shown before the write may stay so: it can be deleted.
		if _, before := r.encode(found, r.codec.storage); before == nil {
			return Result{}, err
		}
		if item, err = r.encodeItem(found, r.codec.storage); err != nil {
			return Result{}, err
		}
	}
	op, err := r.put(ctx, found.Key, value)
	if err != nil {
		return Result{}, err
	}
	op.TTL = r.Kind.TTLSeconds
	revision, err := r.store.Commit(ctx, companions.with(storage.Txn{
		Conditions: []storage.Condition{{Key: op.Key, ModRevision: found.Revision}},
		Ops:        []storage.Op{op},
	}))
	if err != nil {
		return Result{}, err
	}
	return r.written(found.Key, value, item, revision)
}

const optimisticLock = "the object has been modified; please apply your changes to the latest version and try again"

// checkVersion holds the resourceVersion that a client sent against the current
// one.
func (r *Resource) checkVersion(gr schema.GroupResource, name string, obj Object, current int64) error {
	rv := obj.GetResourceVersion()
	version, err := strconv.ParseUint(rv, 10, 63)
	switch {
	case rv == "" || err == nil && version == 0:
		if r.Kind.UnconditionalUpdate {
			obj.SetResourceVersion(strconv.FormatInt(current, 10))
			return nil
		}
		return kerrors.NewInvalid(schema.GroupKind{Group: gr.Group, Kind: gr.Resource}, name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), version, "must be specified for an update"),
		})
	case err != nil:
		return apierr.New(http.StatusInternalServerError, "", err.Error())
	case int64(version) != current:
		return kerrors.NewConflict(gr, name, errors.New(optimisticLock))
	}
	return nil
}

// checkUID holds the UID that a client sent against the current one.
func (r *Resource) checkUID(gr schema.GroupResource, found *cache.Object, obj, old Object, o UpdateOptions) error {
	if !o.CheckUID || obj.GetUID() == "" || obj.GetUID() == old.GetUID() {
		return nil
	}
	return r.preconditionFailed(gr, found, fmt.Sprintf("UID in precondition: %s, UID in object meta: %s", obj.GetUID(), old.GetUID()))
}

// UIDMismatch answers an update that names another object than the current one.
func (r *Resource) UIDMismatch(found *cache.Object, want, have types.UID) error {
	return r.preconditionFailed(r.Kind.GroupResource(), found, fmt.Sprintf("UID in precondition: %s, UID in object meta: %s", want, have))
}

// preconditionFailed words a failed precondition as the reference's storage layer
// does.
func (r *Resource) preconditionFailed(gr schema.GroupResource, o *cache.Object, what string) error {
	return kerrors.NewConflict(gr, o.Name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: %s", r.prefix+o.Key, what))
}

// beforeUpdate completes and checks an object that replaces old.
func (r *Resource) beforeUpdate(ctx context.Context, namespace string, obj, old Object, o UpdateOptions) error {
	if err := r.checkNamespace(namespace, obj); err != nil {
		return err
	}
	h := &r.Kind.Hooks
	sub := o.Subresource
	dedupOwners(ctx, obj, " after mutating admission happens")
	obj.SetGeneration(old.GetGeneration())
	switch {
	case o.Raw:
	case sub == nil || sub.Scale != nil:
		r.prepareMain(ctx, obj, old)
	case sub.Status:
		r.prepareStatus(ctx, obj, old)
	case sub.Update != nil && sub.Update.Prepare != nil:
		// Who set what was found out before; a part may begin with the old object.
		owned := obj.GetManagedFields()
		sub.Update.Prepare(ctx, obj, old)
		obj.SetManagedFields(owned)
	}
	keepServerFields(obj, old)
	errs := r.validateMetaUpdate(obj, old)
	var more func(context.Context, Object, Object) field.ErrorList
	switch {
	case o.Raw:
	case sub == nil || sub.Scale != nil:
		more = h.ValidateUpdate
	case sub.Status:
		more = h.ValidateStatusUpdate
	case sub.Update != nil:
		more = sub.Update.Validate
	}
	if more != nil {
		errs = append(errs, more(ctx, obj, old)...)
	}
	if len(errs) > 0 {
		return r.invalid(obj, errs)
	}
	if h.Canonicalize != nil {
		h.Canonicalize(obj)
	}
	if !o.Raw && (sub == nil || sub.Scale != nil) {
		r.warn(ctx, obj, old)
	}
	return nil
}

func (r *Resource) prepareMain(ctx context.Context, obj, old Object) {
	h := &r.Kind.Hooks
	if h.Status != nil {
		copyPart(h.Status(obj), h.Status(old))
	}
	if h.PrepareUpdate != nil {
		h.PrepareUpdate(ctx, obj, old)
	}
	if !h.Generation {
		return
	}
	part := h.GenerationOf
	if part == nil {
		part = h.Spec
	}
	if part != nil && !equalParts(part(obj), part(old)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

func (r *Resource) prepareStatus(ctx context.Context, obj, old Object) {
	h := &r.Kind.Hooks
	if h.Spec != nil {
		copyPart(h.Spec(obj), h.Spec(old))
	}
	if h.StatusKeepsMeta {
		obj.SetLabels(old.GetLabels())
		obj.SetAnnotations(old.GetAnnotations())
		obj.SetOwnerReferences(old.GetOwnerReferences())
		obj.SetFinalizers(old.GetFinalizers())
	}
	if h.PrepareStatusUpdate != nil {
		h.PrepareStatusUpdate(ctx, obj, old)
	}
}

// keepServerFields brings back what a client cannot change.
func keepServerFields(obj, old Object) {
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
