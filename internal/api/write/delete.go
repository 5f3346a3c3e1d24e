package write

import (
	"context"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// prepareDeletion decides how the deletion changes the object. It uses the stored version: a deletion must not depend
// on a conversion webhook. The object is only changed in memory: admission may still refuse the deletion.
func (a *attempt) prepareDeletion() {
	a.obj = a.current.Copy()
	a.effect = a.deletion().begin(a.obj)
}

// deletion returns the deletion that the request asks for.
func (a *attempt) deletion() deletion {
	return deletion{
		kind: a.Target.Kind, options: a.Options.Delete, now: a.Target.Resource.Now(), ignorePropagation: a.p.IgnorePropagation,
	}
}

// admitDeletion calls mutating and validating admission. (Both are called here, because a deletion has no new object
// that could be changed earlier.)
func (a *attempt) admitDeletion(ctx context.Context) error {
	if a.admission == nil || a.Admitted || a.effect == pending || a.effect == beingEmptied {
		return nil
	}
	attributes := a.attributes(ctx, nil, a.old())
	if !a.Options.Collection { // the options of a collection are those of the request, as in kube-apiserver
		attributes.Options.Delete = a.deletion().effectiveOptions(a.old(), a.obj)
	}
	if err := a.admission.Mutate(ctx, attributes); err != nil {
		return err
	}
	return a.admission.Validate(ctx, attributes)
}

// commitDeletion removes the object, or stores that its deletion has begun.
func (a *attempt) commitDeletion(ctx context.Context) (registry.Result, error) {
	t, how := a.Target, registry.Commit{DryRun: a.Options.DryRun, Unconverted: true}
	switch a.effect {
	case pending, alreadyGoing, beingEmptied:
		return registry.Result{Object: a.found}, nil
	case keep:
		return t.Resource.Writer.Replace(ctx, a.found, a.obj, how)
	case removeNow:
		return a.remove(ctx, how)
	}
	// Watchers see the mark before the object goes. These are two commits, so watchers get MODIFIED and then
	// DELETED.
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
// so, because nothing keeps the marked object. found is the current object. An object that was created meanwhile
// under the same name has another CreateRevision.
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
