package registry

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/storage"
)

// CreateOptions are the options of a create.
type CreateOptions struct {
	DryRun bool
	Admit  Admit
	// Group is the API group of the request where it is not the kind's own.
	Group string
	// companions are written with the object; conflicts are those of earlier attempts.
	companions Companions
	conflicts  []*storage.ConflictError
	// orUpdate returns the store's conflict with an object that came meanwhile:
	// the caller updates that one.
	orUpdate bool
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
	if r.allocator == nil {
		return r.create(ctx, namespace, obj, o)
	}
	return r.attempt(ctx, func(conflicts []*storage.ConflictError) (Result, error) {
		o.conflicts = conflicts
		return r.create(ctx, namespace, obj.DeepCopyObject().(Object), o)
	})
}

func (r *Resource) create(ctx context.Context, namespace string, obj Object, o CreateOptions) (Result, error) {
	generate := obj.GetName() == "" && obj.GetGenerateName() != ""
	if err := r.beforeCreate(ctx, namespace, obj, &o); err != nil {
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
			// What was allocated is the object's under its new name.
			if err := r.allocateNew(ctx, obj, &o); err != nil {
				return Result{}, err
			}
			continue
		}
		return result, err
	}
}

func (r *Resource) insert(ctx context.Context, obj Object, o CreateOptions) (Result, error) {
	// kube-apiserver's store refuses a version, which a dry run does not reach; what is not a number is
	// dropped.
	if rv, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64); err == nil && rv != 0 && !o.DryRun {
		return Result{}, apierr.New(http.StatusInternalServerError, "", "resourceVersion should not be set on objects to be created")
	}
	key := r.Key(obj.GetNamespace(), obj.GetName())
	if o.DryRun {
		found, err := r.current(ctx, key)
		if err != nil {
			return Result{}, err
		}
		if found != nil {
			return Result{}, r.alreadyExists(o.Group, found)
		}
		return r.dryResult(key, obj)
	}
	value, err := r.codec.encode(obj)
	if err != nil {
		return Result{}, err
	}
	item, err := r.preview(value)
	if err != nil {
		return Result{}, err
	}
	op, err := r.put(ctx, key, value)
	if err != nil {
		return Result{}, err
	}
	op.TTL = r.Kind.TTLSeconds
	revision, err := r.store.Commit(ctx, o.companions.with(storage.Txn{
		Conditions: []storage.Condition{{Key: op.Key}},
		Ops:        []storage.Op{op},
	}))
	if conflict := (*storage.ConflictError)(nil); errors.As(err, &conflict) && !o.orUpdate && !r.companion(conflict) {
		found, err := r.objectOf(ctx, key, conflict.Current.Value, conflict.Current.ModRevision)
		if err != nil {
			return Result{}, kerrors.NewAlreadyExists(r.groupResource(o.Group), obj.GetName())
		}
		return Result{}, r.alreadyExists(o.Group, found)
	}
	if err != nil {
		return Result{}, err
	}
	return r.written(key, value, item, revision)
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

// beforeCreate completes and checks a new object.
func (r *Resource) beforeCreate(ctx context.Context, namespace string, obj Object, o *CreateOptions) error {
	if err := r.checkNamespace(namespace, obj); err != nil {
		return err
	}
	WipeServerFields(obj)
	obj.SetCreationTimestamp(metav1.Time{Time: r.now()}.Rfc3339Copy())
	obj.SetUID(uuid.NewUUID())
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(generatedName(obj.GetGenerateName()))
	}
	if err := r.allocateNew(ctx, obj, o); err != nil {
		return err
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
	var errs field.ErrorList
	if h.rightType(obj) {
		errs = r.validateMeta(obj)
	}
	if h.Validate != nil {
		errs = append(errs, h.Validate(ctx, obj)...)
	}
	if len(errs) == 0 {
		errs = validatePathSegments(obj)
	}
	if len(errs) > 0 {
		return r.invalid(obj, errs)
	}
	if h.Canonicalize != nil {
		h.Canonicalize(obj)
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

func generatedName(base string) string {
	return base[:min(len(base), maxGenerated)] + utilrand.String(nameSuffix)
}
