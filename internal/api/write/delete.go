package write

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// prepareDeletion decides how the deletion changes the object. It uses the stored version: a deletion must not depend
// on a conversion webhook.
func (a *attempt) prepareDeletion() {
	a.obj = a.current.Copy()
	a.deletion = a.begin(a.obj)
}

// admitDeletion calls mutating and validating admission. (Both are called here, because a deletion has no new object
// that could be changed earlier.)
func (a *attempt) admitDeletion(ctx context.Context) error {
	if a.admission == nil || a.Admitted || a.deletion == pending || a.deletion == beingEmptied {
		return nil
	}
	attributes := a.attributes(ctx, nil, a.old())
	attributes.Options.Delete = a.effectiveOptions()
	if err := a.admission.Mutate(ctx, attributes); err != nil {
		return err
	}
	return a.admission.Validate(ctx, attributes)
}

// effectiveOptions returns the options that admission sees, with what the kind makes of those of the request: the grace period that the
// object gets, and of an object that others empty first its UID. The decisions of a later attempt do not depend on them. The options of the
// deletion of a collection are those of the request, as in kube-apiserver.
func (a *attempt) effectiveOptions() *metav1.DeleteOptions {
	options, kind := a.Options.Delete, &a.Target.Kind.Deletion
	grace, before := a.obj.GetDeletionGracePeriodSeconds(), a.old().GetDeletionGracePeriodSeconds()
	switch g := options.GracePeriodSeconds; {
	case a.Options.Collection:
	case kind.Started != nil && (options.Preconditions == nil || options.Preconditions.UID == nil):
		options = options.DeepCopy()
		if options.Preconditions == nil {
			options.Preconditions = &metav1.Preconditions{}
		}
		uid := a.old().GetUID()
		options.Preconditions.UID = &uid
	case kind.Started != nil:
	case kind.Grace != nil && grace != nil && (before == nil || *before != *grace): // this deletion sets it
		options = options.DeepCopy()
		options.GracePeriodSeconds = grace
	case g != nil && *g < 0: // also of kinds without a grace period
		options = options.DeepCopy()
		options.GracePeriodSeconds = new(int64(1))
	}
	return options
}

// commitDeletion removes the object, or stores that its deletion has begun.
func (a *attempt) commitDeletion(ctx context.Context) (registry.Result, error) {
	t, how := a.Target, registry.Commit{DryRun: a.Options.DryRun, Unconverted: true}
	switch a.deletion {
	case pending, alreadyGoing, beingEmptied:
		return registry.Result{Object: a.found}, nil
	case keep:
		return t.Resource.Writer.Replace(ctx, a.found, a.obj, how)
	case removeNow:
		return a.remove(ctx, how)
	}
	// Watchers see the mark before the object goes.
	marked, err := t.Resource.Writer.Replace(ctx, a.found, a.obj, how)
	if err != nil {
		return registry.Result{}, err
	}
	if how.DryRun {
		marked.Deleted = true
		return marked, nil
	}
	a.found, a.marked = marked.Object, marked
	return a.remove(ctx, how)
}

// goneAfterMark reports whether another write has removed the object after this deletion had marked it. An update does
// so, because nothing keeps the marked object. found is the current object.
func (a *attempt) goneAfterMark(found *cache.Object) bool {
	return a.marked.Object != nil && (found == nil || found.CreateRevision != a.marked.Object.CreateRevision)
}

// remove deletes the object together with its allocations.
func (a *attempt) remove(ctx context.Context, how registry.Commit) (_ registry.Result, err error) {
	if allocator := a.Target.Resource.Writer.Allocator(); allocator != nil && !how.DryRun {
		if how.SideWrites, err = allocator.Release(ctx, a.old(), a.conflicts); err != nil {
			return registry.Result{}, err
		}
	}
	return a.Target.Resource.Writer.Remove(ctx, a.found, how)
}

// removeAfterUpdate deletes an object whose last finalizer an update removed; the
// answer is the updated object.
func (a *attempt) removeAfterUpdate(ctx context.Context) (registry.Result, error) {
	result, err := a.Target.Resource.Writer.Unstored(ctx, a.found, a.obj)
	if err != nil || a.Options.DryRun {
		return result, err
	}
	if _, err := a.remove(ctx, registry.Commit{}); err != nil {
		return registry.Result{}, err
	}
	result.Deleted = true
	return result, nil
}

// deletableNow reports whether nothing keeps an object whose deletion has begun.
func (a *attempt) deletableNow(obj registry.Object) bool {
	if obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 {
		return false
	}
	if f := a.Target.Kind.Deletion.Finalizing; f != nil && f(obj) {
		return false
	}
	grace := obj.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

// A deletion is the effect of a DELETE.
type deletion int

const (
	removeNow    deletion = iota // nothing keeps the object
	keep                         // the object was changed and stays for now
	removeMarked                 // the object was marked and goes at once
	alreadyGoing                 // nothing changes
	pending                      // nothing changes: the grace period runs
	beingEmptied                 // nothing changes: others empty the object, and admission was asked when that began
)

// begin decides what a deletion does to obj, and does it to the object in memory.
func (a *attempt) begin(obj registry.Object) deletion {
	kind, options := &a.Target.Kind.Deletion, a.Options.Delete
	if kind.Started != nil && obj.GetDeletionTimestamp() == nil {
		// Kinds that others empty first (namespaces) always stay at first.
		if !kind.IgnoresPropagation {
			a.setCollectorFinalizers(obj, options)
		}
		now := metav1.Time{Time: a.Target.Resource.Now()}.Rfc3339Copy()
		obj.SetDeletionTimestamp(&now)
		kind.Started(obj)
		return keep
	}
	if obj.GetDeletionTimestamp() != nil && kind.Finalizing != nil && kind.Finalizing(obj) {
		return beingEmptied
	}
	graceful, waits := a.beginGrace(obj, options)
	if waits {
		return pending
	}
	changed := a.setCollectorFinalizers(obj, options)
	finalizing := len(obj.GetFinalizers()) > 0
	if graceful {
		if !finalizing && *obj.GetDeletionGracePeriodSeconds() == 0 {
			return removeMarked
		}
		return keep
	}
	if finalizing {
		if obj.GetDeletionTimestamp() != nil && !changed && obj.GetDeletionGracePeriodSeconds() != nil &&
			*obj.GetDeletionGracePeriodSeconds() == 0 {
			return alreadyGoing
		}
		a.markDeleting(obj, true)
		return keep
	}
	return removeNow
}

// markDeleting sets the deletion timestamp of an object without a grace period.
func (a *attempt) markDeleting(obj registry.Object, zeroGrace bool) {
	now := metav1.Time{Time: a.Target.Resource.Now()}.Rfc3339Copy()
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

// beginGrace starts or shortens a graceful deletion. graceful means that obj was changed and stays until its grace
// period, which may be zero, ends; waits means that it stays unchanged.
func (a *attempt) beginGrace(obj registry.Object, options *metav1.DeleteOptions) (graceful, waits bool) {
	graceOf := a.Target.Kind.Deletion.Grace
	if graceOf == nil {
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
	seconds, ok := graceOf(obj, options)
	if !ok {
		return false, false
	}
	end := metav1.Time{Time: a.Target.Resource.Now().Add(time.Duration(seconds) * time.Second)}.Rfc3339Copy()
	obj.SetDeletionTimestamp(&end)
	obj.SetDeletionGracePeriodSeconds(&seconds)
	if obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	return true, false
}

// setCollectorFinalizers sets the garbage collector's finalizers as the propagation policy requires, and reports
// whether that changed anything.
func (a *attempt) setCollectorFinalizers(obj registry.Object, options *metav1.DeleteOptions) bool {
	if a.p.IgnorePropagation {
		return false
	}
	had := obj.GetFinalizers()
	orphan, foreground := a.propagation(had, options)
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
	before, after := slices.Clone(had), slices.Clone(want)
	slices.Sort(before)
	slices.Sort(after)
	if slices.Equal(before, after) {
		return false
	}
	obj.SetFinalizers(want)
	return true
}

// propagation decides between orphaning, foreground and (neither) background.
func (a *attempt) propagation(finalizers []string, options *metav1.DeleteOptions) (orphan, foreground bool) {
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
	return a.Target.Kind.Requests.DefaultOrphan, false
}
