package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/storage"
)

// Result is what a write left behind.
type Result struct {
	// Object is the object as it is (or, for a dry run, would be) stored; of a
	// deletion as it was last.
	Object *cache.Object
	// Created says that an update made a new object, Deleted that the object is
	// gone.
	Created, Deleted bool
	// item is the JSON in the storage version where the write made it anyway.
	item []byte
}

// Admit is called with the object as it would be stored, before it is; an error
// refuses the write. old is nil on create.
type Admit func(ctx context.Context, obj, old Object) error

// CreateOptions are the options of a create.
type CreateOptions struct {
	DryRun bool
	Admit  Admit
	// Group is the API group of the request where it is not the kind's own.
	Group string
}

// nameSuffix is the length of a generated name's random end; the name before it
// is cut so that both fit a DNS label.
const (
	nameSuffix     = 5
	maxGenerated   = 63 - nameSuffix
	maxNameRetries = 8
)

// Create stores a new object. obj is of the storage version, defaulted, and
// belongs to Create afterwards.
func (r *Resource) Create(ctx context.Context, namespace string, obj Object, o CreateOptions) (Result, error) {
	generate := obj.GetName() == "" && obj.GetGenerateName() != ""
	if err := r.beforeCreate(ctx, namespace, obj); err != nil {
		return Result{}, err
	}
	if o.Admit != nil {
		if err := o.Admit(ctx, obj, nil); err != nil {
			return Result{}, err
		}
	}
	for try := 0; ; try++ {
		result, err := r.insert(ctx, obj, o)
		if generate && kerrors.IsAlreadyExists(err) && try < maxNameRetries {
			obj.SetName(generatedName(obj.GetGenerateName()))
			continue
		}
		return result, err
	}
}

func (r *Resource) groupResource(group string) schema.GroupResource {
	gr := r.Kind.GroupResource()
	if group != "" {
		gr.Group = group
	}
	return gr
}

func (r *Resource) insert(ctx context.Context, obj Object, o CreateOptions) (Result, error) {
	if rv := obj.GetResourceVersion(); rv != "" && rv != "0" {
		return Result{}, apierr.New(http.StatusInternalServerError, "", "resourceVersion should not be set on objects to be created")
	}
	key := r.Key(obj.GetNamespace(), obj.GetName())
	if o.DryRun {
		snap, err := r.Current(ctx)
		if err != nil {
			return Result{}, err
		}
		if found, ok := snap.Get(key); ok {
			return Result{}, r.alreadyExists(o.Group, found)
		}
		return r.dryResult(key, obj)
	}
	value, err := r.codec.encode(obj)
	if err != nil {
		return Result{}, err
	}
	op := storage.Put(r.prefix+key, value)
	op.TTL = r.Kind.TTLSeconds
	revision, err := r.store.Commit(ctx, storage.Txn{
		Conditions: []storage.Condition{{Key: op.Key}},
		Ops:        []storage.Op{op},
	})
	if conflict := (*storage.ConflictError)(nil); errors.As(err, &conflict) {
		found, err := r.objectOf(key, conflict.Current.Value, conflict.Current.ModRevision)
		if err != nil {
			return Result{}, err
		}
		return Result{}, r.alreadyExists(o.Group, found)
	}
	if err != nil {
		return Result{}, err
	}
	return r.written(key, value, revision)
}

// alreadyExists answers a create of what is there, and says so if it is on its
// way out.
func (r *Resource) alreadyExists(group string, found *cache.Object) error {
	err := kerrors.NewAlreadyExists(r.groupResource(group), found.Name)
	if obj, derr := r.Decode(found); derr == nil && obj.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// written makes the result of a committed value, and hands its JSON to the
// cache: the client is likely to have asked for it.
func (r *Resource) written(key string, value []byte, revision int64) (Result, error) {
	o, err := r.objectOf(key, value, revision)
	if err != nil {
		return Result{}, err
	}
	result := Result{Object: o}
	if !r.codec.storedAsServed() {
		if result.item, err = r.encodeItem(o, r.codec.storage); err != nil {
			return Result{}, err
		}
		r.cache.Offer(key, revision, FormJSON, result.item)
	}
	return result, nil
}

// objectOf makes a cache object of a stored value.
func (r *Resource) objectOf(key string, value []byte, revision int64) (*cache.Object, error) {
	h, err := r.codec.Read(key, value, revision)
	if err != nil {
		return nil, err
	}
	return objectAt(key, revision, h), nil
}

func objectAt(key string, revision int64, h cache.Header) *cache.Object {
	o := &cache.Object{Key: key, Name: key, Revision: revision, Labels: h.Labels, Fields: h.Fields, Data: h.Data}
	if i := strings.IndexByte(key, '/'); i >= 0 {
		o.Namespace, o.Name = key[:i], key[i+1:]
	}
	return o
}

// dryResult is the result of a write that is not done.
func (r *Resource) dryResult(key string, obj Object) (Result, error) {
	revision, _ := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	value, err := r.codec.encode(obj)
	if err != nil {
		return Result{}, err
	}
	o, err := r.objectOf(key, value, revision)
	if err != nil {
		return Result{}, err
	}
	if revision == 0 {
		// Read stamps every object; this one was never stored.
		if o.Data, err = r.codec.plain(value); err != nil {
			return Result{}, err
		}
	}
	item, err := r.encodeItem(o, r.codec.storage)
	return Result{Object: o, item: item}, err
}

// ResultJSON returns the item JSON of a result in version v.
func (r *Resource) ResultJSON(res Result, v *Version) ([]byte, error) {
	if res.item != nil && r.stored(v) {
		return res.item, nil
	}
	return r.encodeItem(res.Object, v)
}

// beforeCreate completes and checks a new object.
func (r *Resource) beforeCreate(ctx context.Context, namespace string, obj Object) error {
	if err := r.checkNamespace(namespace, obj); err != nil {
		return err
	}
	WipeServerFields(obj)
	obj.SetCreationTimestamp(metav1.Time{Time: r.now()}.Rfc3339Copy())
	obj.SetUID(uuid.NewUUID())
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(generatedName(obj.GetGenerateName()))
	}
	dedupOwners(ctx, obj, "")
	h := &r.Kind.Hooks
	if h.Status != nil {
		clearPart(h.Status(obj))
	}
	if h.Generation {
		obj.SetGeneration(1)
	}
	if h.PrepareCreate != nil {
		h.PrepareCreate(ctx, obj)
	}
	errs := r.validateMeta(obj)
	if h.Validate != nil {
		errs = append(errs, h.Validate(ctx, obj)...)
	}
	if len(errs) > 0 {
		return kerrors.NewInvalid(r.Kind.GroupKind(), obj.GetName(), errs)
	}
	r.warn(ctx, obj, nil)
	return nil
}

// WipeServerFields drops what a client cannot set on a new object.
func WipeServerFields(obj Object) {
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetUID("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

func (r *Resource) validateMeta(obj Object) field.ErrorList {
	validate := validation.ValidateNameFunc(validation.NameIsDNSSubdomain)
	if r.Kind.ValidateName != nil {
		validate = r.Kind.ValidateName
	}
	return validation.ValidateObjectMetaAccessor(obj, r.Kind.Namespaced, validate, field.NewPath("metadata"))
}

// validateMetaUpdate checks an update's metadata: by the generic rules, and by
// those of them that the kind's own validation repeats.
func (r *Resource) validateMetaUpdate(obj, old Object) field.ErrorList {
	path := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(obj, r.Kind.Namespaced, anyName, path)
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(obj, old, path)...)
	if r.Kind.MetaOnUpdate == MetaNothing {
		return errs
	}
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(obj, old, path)...)
	if r.Kind.MetaOnUpdate == MetaWhole {
		errs = append(errs, r.validateMeta(obj)...)
	}
	return errs
}

// anyName accepts every name: that of an existing object is what it is.
func anyName(string, bool) []string { return nil }

func (r *Resource) warn(ctx context.Context, obj, old Object) {
	if r.Kind.Hooks.Warn == nil {
		return
	}
	for _, w := range r.Kind.Hooks.Warn(ctx, obj, old) {
		request.Warn(ctx, w)
	}
}

// checkNamespace makes the object's namespace that of the request.
func (r *Resource) checkNamespace(namespace string, obj Object) error {
	switch {
	case !r.Kind.Namespaced:
		obj.SetNamespace("")
	case obj.GetNamespace() == namespace:
	case obj.GetNamespace() == "":
		obj.SetNamespace(namespace)
	default:
		return kerrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

func generatedName(base string) string {
	return base[:min(len(base), maxGenerated)] + utilrand.String(nameSuffix)
}

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
}

// Update changes an object by change, which is given the current one and returns
// the new one in the storage version. After a concurrent change it is called
// again.
func (r *Resource) Update(ctx context.Context, namespace, name string, o UpdateOptions, change func(*Current) (Object, error)) (Result, error) {
	snap, err := r.Current(ctx)
	if err != nil {
		return Result{}, err
	}
	key := r.Key(namespace, name)
	found, _ := snap.Get(key)
	for {
		result, err := r.tryUpdate(ctx, namespace, name, found, o, change)
		conflict := (*storage.ConflictError)(nil)
		if !errors.As(err, &conflict) {
			return result, err
		}
		found = nil
		if conflict.Current.ModRevision != 0 {
			if found, err = r.objectOf(key, conflict.Current.Value, conflict.Current.ModRevision); err != nil {
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
	return r.replace(ctx, found, obj)
}

func (r *Resource) createByUpdate(ctx context.Context, namespace string, obj Object, o UpdateOptions) (Result, error) {
	// A resourceVersion on an object that a PUT creates is ignored, as the
	// reference does.
	obj.SetResourceVersion("")
	result, err := r.Create(ctx, namespace, obj, CreateOptions{DryRun: o.DryRun, Admit: o.CreateAdmit, Group: o.Group})
	result.Created = true
	return result, err
}

// replace stores obj in place of found, unless nothing would change.
func (r *Resource) replace(ctx context.Context, found *cache.Object, obj Object) (Result, error) {
	value, err := r.codec.encode(obj)
	if err != nil {
		return Result{}, err
	}
	same, err := r.codec.Read(found.Key, value, found.Revision)
	if err != nil {
		return Result{}, err
	}
	if bytes.Equal(same.Data, found.Data) {
		return Result{Object: found}, nil
	}
	op := storage.Put(r.prefix+found.Key, value)
	op.TTL = r.Kind.TTLSeconds
	revision, err := r.store.Commit(ctx, storage.Txn{
		Conditions: []storage.Condition{{Key: op.Key, ModRevision: found.Revision}},
		Ops:        []storage.Op{op},
	})
	if err != nil {
		return Result{}, err
	}
	return r.written(found.Key, value, revision)
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
		return kerrors.NewInvalid(r.Kind.GroupKind(), obj.GetName(), errs)
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
