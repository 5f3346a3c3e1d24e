package write

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// A deletion decides what a DELETE does to an object of a kind.
type deletion struct {
	kind              *registry.Kind
	options           *metav1.DeleteOptions
	now               time.Time
	ignorePropagation bool // there is no garbage collector
}

// An effect is what a DELETE does.
type effect int

const (
	removeNow    effect = iota // nothing keeps the object
	keep                       // the object was changed and stays for now
	removeMarked               // the object was marked and goes at once
	alreadyGoing               // nothing changes
	pending                    // nothing changes: the grace period runs
	beingEmptied               // nothing changes: others empty the object, and admission was asked when that began
)

// begin decides what a deletion does to obj, and does it to the object in memory.
func (d deletion) begin(obj registry.Object) effect {
	kind := &d.kind.Deletion
	if kind.Started != nil && obj.GetDeletionTimestamp() == nil {
		// Kinds whose content is deleted first (namespaces) always stay at first.
		if !kind.IgnoresPropagation {
			d.setCollectorFinalizers(obj)
		}
		obj.SetDeletionTimestamp(d.after(0))
		kind.Started(obj)
		return keep
	}
	if obj.GetDeletionTimestamp() != nil && kind.Finalizing != nil && kind.Finalizing(obj) {
		return beingEmptied
	}
	// The order of the steps is that of kube-apiserver: the grace period first, then the finalizers of the
	// garbage collector.
	graceful, waits := d.beginGrace(obj)
	if waits {
		return pending
	}
	changed := d.setCollectorFinalizers(obj)
	finalizing := len(obj.GetFinalizers()) > 0
	// A finalizer keeps an object longer than its grace period. The removal of the last finalizer removes it
	// then.
	if graceful {
		if !finalizing && *obj.GetDeletionGracePeriodSeconds() == 0 {
			return removeMarked
		}
		return keep
	}
	if finalizing {
		// A repeated DELETE of an object that waits for its finalizers changes nothing, and watchers get no
		// event.
		if obj.GetDeletionTimestamp() != nil && !changed && obj.GetDeletionGracePeriodSeconds() != nil &&
			*obj.GetDeletionGracePeriodSeconds() == 0 {
			return alreadyGoing
		}
		d.mark(obj)
		return keep
	}
	return removeNow
}

// mark sets the deletion timestamp of an object without a grace period. It counts up the generation, because
// controllers have to treat an object that is being deleted differently. A timestamp in the future is the end of
// a grace period that nobody waits for any more; it becomes now.
func (d deletion) mark(obj registry.Object) {
	now := d.after(0)
	if obj.GetDeletionTimestamp() == nil && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	if t := obj.GetDeletionTimestamp(); t == nil || t.After(now.Time) {
		obj.SetDeletionTimestamp(now)
	}
	obj.SetDeletionGracePeriodSeconds(new(int64(0)))
}

// after returns the time so many seconds after now, as objects store it. Objects store times in whole seconds.
func (d deletion) after(seconds int64) *metav1.Time {
	return new(metav1.Time{Time: d.now.Add(time.Duration(seconds) * time.Second)}.Rfc3339Copy())
}

// beginGrace starts or shortens a graceful deletion. graceful means that obj was changed and stays until its grace
// period, which may be zero, ends; waits means that it stays unchanged.
func (d deletion) beginGrace(obj registry.Object) (graceful, waits bool) {
	graceOf, options := d.kind.Deletion.Grace, d.options
	if graceOf == nil {
		return false, false
	}
	if begun := obj.GetDeletionTimestamp(); begun != nil {
		left := obj.GetDeletionGracePeriodSeconds()
		// The grace period is over; only finalizers keep the object.
		if left == nil || *left == 0 {
			return false, false
		}
		// A later DELETE may shorten the grace period, but never extend it. One that names no period changes
		// nothing.
		if options.GracePeriodSeconds == nil || *options.GracePeriodSeconds >= *left {
			return false, true
		}
		seconds := max(*options.GracePeriodSeconds, 0)
		// A negative period means 1 second and not 0: with 0 the object of a pod is removed without waiting for
		// its kubelet.
		if *options.GracePeriodSeconds < 0 {
			seconds = 1
		}
		// The timestamp is the end of the grace period. It moves by the difference between the periods, so the
		// time since the first DELETE counts.
		sooner := metav1.NewTime(begun.Add(time.Duration(seconds-*left) * time.Second))
		obj.SetDeletionTimestamp(&sooner)
		obj.SetDeletionGracePeriodSeconds(&seconds)
		return true, false
	}
	seconds, ok := graceOf(obj, options)
	if !ok {
		return false, false
	}
	obj.SetDeletionTimestamp(d.after(seconds))
	obj.SetDeletionGracePeriodSeconds(&seconds)
	if obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	return true, false
}

// setCollectorFinalizers sets the garbage collector's finalizers as the propagation policy requires, and reports
// whether that changed anything. Background needs no finalizer: the object goes first, and the collector finds
// the dependents by their owner references.
func (d deletion) setCollectorFinalizers(obj registry.Object) bool {
	if d.ignorePropagation {
		return false
	}
	had := obj.GetFinalizers()
	orphan, foreground := d.propagation(had)
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
	// The finalizers are a set: another order is no change, and must not make a new revision.
	before, after := slices.Clone(had), slices.Clone(want)
	slices.Sort(before)
	slices.Sort(after)
	if slices.Equal(before, after) {
		return false
	}
	obj.SetFinalizers(want)
	return true
}

// propagation decides between orphaning, foreground and (neither) background. The deprecated orphanDependents
// comes first; validation refuses requests with both fields. A request with neither keeps what an earlier
// deletion or a client has chosen by a finalizer, and else gets the default of the kind.
func (d deletion) propagation(finalizers []string) (orphan, foreground bool) {
	if o := d.options.OrphanDependents; o != nil { //nolint:staticcheck // deprecated, still served
		return *o, false
	}
	if p := d.options.PropagationPolicy; p != nil {
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
	return d.kind.Requests.DefaultOrphan, false
}

// effectiveOptions returns the DeleteOptions that admission sees. They are those of the request with these changes:
// the grace period is the one that the object gets, a negative one is 1, and for namespaces and definitions the UID
// of the object is a precondition. If the write is repeated after a conflict, it decides by the options of the
// request again. old is the object before begin, obj after it.
func (d deletion) effectiveOptions(old, obj registry.Object) *metav1.DeleteOptions {
	options, kind := d.options, &d.kind.Deletion
	grace, before := obj.GetDeletionGracePeriodSeconds(), old.GetDeletionGracePeriodSeconds()
	switch g := options.GracePeriodSeconds; {
	case kind.Started != nil && (options.Preconditions == nil || options.Preconditions.UID == nil):
		options = options.DeepCopy()
		if options.Preconditions == nil {
			options.Preconditions = &metav1.Preconditions{}
		}
		options.Preconditions.UID = new(old.GetUID())
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

// deletableNow reports whether nothing keeps an object whose deletion has begun. For a namespace, spec.finalizers
// keep it too (Finalizing).
func deletableNow(kind *registry.Kind, obj registry.Object) bool {
	if obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 {
		return false
	}
	if f := kind.Deletion.Finalizing; f != nil && f(obj) {
		return false
	}
	grace := obj.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}
