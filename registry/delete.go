package registry

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

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/storage"
)

// Delete begins or completes the deletion of an object. Result.Deleted says
// whether it is gone; if not, finalizers or a grace period keep it.
func (r *Resource) Delete(ctx context.Context, namespace, name string, options *metav1.DeleteOptions, admit Admit) (Result, error) {
	key := r.Key(namespace, name)
	found, err := r.current(ctx, key)
	if err != nil {
		return Result{}, err
	}
	for {
		if found == nil {
			return Result{}, kerrors.NewNotFound(r.Kind.GroupResource(), name)
		}
		result, err := r.tryDelete(ctx, found, options, admit)
		conflict := (*storage.ConflictError)(nil)
		if !errors.As(err, &conflict) {
			return result, err
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

func (r *Resource) tryDelete(ctx context.Context, found *cache.Object, options *metav1.DeleteOptions, admit Admit) (Result, error) {
	found, err := r.Readable(ctx, found)
	if err != nil {
		return Result{}, err
	}
	old, err := r.DecodeStored(found)
	if err != nil {
		return Result{}, err
	}
	if err := r.checkPreconditions(found, old, options); err != nil {
		return Result{}, err
	}
	h := &r.Kind.Hooks
	if h.BeforeDelete != nil {
		if err := h.BeforeDelete(ctx, old); err != nil {
			return Result{}, err
		}
	}
	if admit != nil {
		if err := admit(ctx, nil, old); err != nil {
			return Result{}, err
		}
	}
	obj, err := r.DecodeStored(found)
	if err != nil {
		return Result{}, err
	}
	step := r.deletionStep(obj, options)
	dryRun := len(options.DryRun) > 0
	switch {
	case step == alreadyGoing:
		return Result{Object: found}, nil
	case step == keep && dryRun:
		obj.SetResourceVersion(strconv.FormatInt(found.Revision, 10))
		return r.dryResult(found.Key, obj)
	case step == keep:
		return r.replace(ctx, found, obj)
	case step == removeMarked && dryRun:
		obj.SetResourceVersion(strconv.FormatInt(found.Revision, 10))
		result, err := r.dryResult(found.Key, obj)
		result.Deleted = true
		return result, err
	case dryRun:
		return Result{Object: found, Deleted: true}, nil
	case step == removeMarked:
		// Watchers see the mark before the object goes.
		marked, err := r.replace(ctx, found, obj)
		if err != nil {
			return Result{}, err
		}
		return r.remove(ctx, marked.Object)
	}
	return r.remove(ctx, found)
}

// remove deletes what is stored at found's revision.
func (r *Resource) remove(ctx context.Context, found *cache.Object) (Result, error) {
	if r.allocator == nil {
		return r.removeWith(ctx, found, Companions{})
	}
	obj, err := r.DecodeStored(found)
	if err != nil {
		return Result{}, err
	}
	return r.attempt(ctx, func(conflicts []*storage.ConflictError) (Result, error) {
		companions, err := r.allocator.Release(ctx, obj, conflicts)
		if err != nil {
			return Result{}, err
		}
		return r.removeWith(ctx, found, companions)
	})
}

// removeWith is remove in one transaction with what is released.
func (r *Resource) removeWith(ctx context.Context, found *cache.Object, companions Companions) (Result, error) {
	key := r.prefix + found.Key
	revision, err := r.store.Commit(ctx, companions.with(storage.Txn{
		Conditions: []storage.Condition{{Key: key, ModRevision: found.Revision}},
		Ops:        []storage.Op{storage.Delete(key)},
	}))
	if err != nil {
		return Result{}, err
	}
	data, err := r.codec.Restamp(found.Data, revision)
	if err != nil {
		return Result{}, err
	}
	gone := objectAt(found.Key, revision, cache.Header{Labels: found.Labels, Fields: found.Fields, Data: data})
	return Result{Object: gone, Deleted: true}, nil
}

// removeAfterUpdate deletes an object whose last finalizer an update removed; the
// answer is the updated object.
func (r *Resource) removeAfterUpdate(ctx context.Context, found *cache.Object, obj Object, o UpdateOptions) (Result, error) {
	obj.SetResourceVersion(strconv.FormatInt(found.Revision, 10))
	result, err := r.dryResult(found.Key, obj)
	if err != nil || o.DryRun {
		return result, err
	}
	if _, err := r.remove(ctx, found); err != nil {
		return Result{}, err
	}
	result.Deleted = true
	return result, nil
}

// deletableNow says that nothing keeps an object whose deletion has begun.
func (r *Resource) deletableNow(obj Object) bool {
	if obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 {
		return false
	}
	if f := r.Kind.Hooks.Finalizing; f != nil && f(obj) {
		return false
	}
	grace := obj.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

func (r *Resource) checkPreconditions(found *cache.Object, old Object, options *metav1.DeleteOptions) error {
	p := options.Preconditions
	if p == nil {
		return nil
	}
	if r.Kind.Hooks.DeletionStarted != nil {
		return r.checkPreconditionsFirst(found, old, p)
	}
	// The reference names the kind where a resource belongs.
	gr := schema.GroupResource{Group: r.Kind.Group, Resource: r.Kind.Name}
	if p.UID != nil && *p.UID != old.GetUID() {
		return kerrors.NewConflict(gr, found.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, old.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != strconv.FormatInt(found.Revision, 10) {
		return kerrors.NewConflict(gr, found.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, strconv.FormatInt(found.Revision, 10)))
	}
	return nil
}

// checkPreconditionsFirst is checkPreconditions for the kinds whose deletion is begun
// by rules of their own (namespaces, definitions), in the words that those have.
func (r *Resource) checkPreconditionsFirst(found *cache.Object, old Object, p *metav1.Preconditions) error {
	failed := func(what, want, have string) error {
		return kerrors.NewConflict(r.Kind.GroupResource(), found.Name, fmt.Errorf("Precondition failed: %[1]s in precondition: %[2]s, %[1]s in object meta: %[3]s", what, want, have)) //nolint:staticcheck // the reference's words
	}
	if p.UID != nil && *p.UID != old.GetUID() {
		return failed("UID", string(*p.UID), string(old.GetUID()))
	}
	if have := strconv.FormatInt(found.Revision, 10); p.ResourceVersion != nil && *p.ResourceVersion != have {
		return failed("ResourceVersion", *p.ResourceVersion, have)
	}
	return nil
}

// A step of a deletion.
type deletionStep int

const (
	removeNow    deletionStep = iota // nothing keeps the object
	keep                             // the object was changed and stays for now
	removeMarked                     // the object was marked and goes at once
	alreadyGoing                     // nothing changes
)

// deletionStep decides what a delete with options does to obj, and does it to the
// object in memory.
func (r *Resource) deletionStep(obj Object, options *metav1.DeleteOptions) deletionStep {
	h := &r.Kind.Hooks
	if h.DeletionStarted != nil && obj.GetDeletionTimestamp() == nil {
		// Kinds that others empty first (namespaces) always stay at first.
		if !r.Kind.IgnoresPropagation {
			r.setCollectorFinalizers(obj, options)
		}
		now := metav1.Time{Time: r.now()}.Rfc3339Copy()
		obj.SetDeletionTimestamp(&now)
		h.DeletionStarted(obj)
		return keep
	}
	graceful, pending := r.beginGrace(obj, options)
	if pending {
		return alreadyGoing
	}
	changed := r.setCollectorFinalizers(obj, options)
	finalizing := len(obj.GetFinalizers()) > 0
	if graceful {
		if !finalizing && *obj.GetDeletionGracePeriodSeconds() == 0 {
			return removeMarked
		}
		return keep
	}
	if finalizing {
		if obj.GetDeletionTimestamp() != nil && !changed && obj.GetDeletionGracePeriodSeconds() != nil && *obj.GetDeletionGracePeriodSeconds() == 0 {
			return alreadyGoing
		}
		r.markDeleting(obj, true)
		return keep
	}
	if h.Finalizing != nil && h.Finalizing(obj) {
		return alreadyGoing
	}
	return removeNow
}

// markDeleting sets the deletion timestamp of an object without a grace period.
func (r *Resource) markDeleting(obj Object, zeroGrace bool) {
	now := metav1.Time{Time: r.now()}.Rfc3339Copy()
	if obj.GetDeletionTimestamp() == nil && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	if t := obj.GetDeletionTimestamp(); t == nil || t.After(now.Time) {
		obj.SetDeletionTimestamp(&now)
	}
	if zeroGrace {
		var zero int64
		obj.SetDeletionGracePeriodSeconds(&zero)
	}
}

// beginGrace starts or shortens a graceful deletion. graceful says that obj was
// changed and stays until its grace period, which may be zero, ends; pending that
// it stays as it is.
func (r *Resource) beginGrace(obj Object, options *metav1.DeleteOptions) (graceful, pending bool) {
	h := &r.Kind.Hooks
	if h.Grace == nil {
		return false, false
	}
	if begun := obj.GetDeletionTimestamp(); begun != nil {
		left := obj.GetDeletionGracePeriodSeconds()
		if left == nil || *left == 0 {
			return false, false
		}
		if options.GracePeriodSeconds == nil || *options.GracePeriodSeconds >= *left {
			return false, true
		}
		seconds := max(*options.GracePeriodSeconds, 0)
		if *options.GracePeriodSeconds < 0 {
			seconds = 1
		}
		sooner := metav1.NewTime(begun.Add(time.Duration(seconds-*left) * time.Second))
		obj.SetDeletionTimestamp(&sooner)
		obj.SetDeletionGracePeriodSeconds(&seconds)
		return true, false
	}
	seconds, ok := h.Grace(obj, options)
	if !ok {
		return false, false
	}
	end := metav1.Time{Time: r.now().Add(time.Duration(seconds) * time.Second)}.Rfc3339Copy()
	obj.SetDeletionTimestamp(&end)
	obj.SetDeletionGracePeriodSeconds(&seconds)
	if obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	return true, false
}

// setCollectorFinalizers sets the garbage collector's finalizers as the
// propagation policy demands, and says whether that changed anything.
func (r *Resource) setCollectorFinalizers(obj Object, options *metav1.DeleteOptions) bool {
	had := obj.GetFinalizers()
	orphan, foreground := r.propagation(had, options)
	var want []string
	for _, f := range had {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			want = append(want, f)
		}
	}
	if orphan {
		want = append(want, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		want = append(want, metav1.FinalizerDeleteDependents)
	}
	a, b := slices.Clone(had), slices.Clone(want)
	slices.Sort(a)
	slices.Sort(b)
	if slices.Equal(a, b) {
		return false
	}
	obj.SetFinalizers(want)
	return true
}

// propagation decides between orphaning, foreground and (neither) background.
func (r *Resource) propagation(finalizers []string, options *metav1.DeleteOptions) (orphan, foreground bool) {
	if o := options.OrphanDependents; o != nil { //nolint:staticcheck // deprecated, still served
		return *o, false
	}
	if p := options.PropagationPolicy; p != nil {
		return *p == metav1.DeletePropagationOrphan, *p == metav1.DeletePropagationForeground
	}
	for _, f := range finalizers {
		switch f {
		case metav1.FinalizerOrphanDependents:
			return true, false
		case metav1.FinalizerDeleteDependents:
			return false, true
		}
	}
	return r.Kind.DefaultOrphan, false
}
