package write

import (
	"context"
	"errors"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

// errUnfinished stands for a write that a panic has ended.
var errUnfinished = errors.New("the write did not finish")

// charge calls Charge of admission. The charges are committed with the object, but charges of another store before it.
func (a *attempt) charge(ctx context.Context) (err error) {
	a.charges = nil
	if a.approved == nil {
		return nil
	}
	a.approved.Conflicts = a.conflicts
	if a.charges, err = a.admission.Charge(ctx, a.approved); err != nil || a.Options.DryRun {
		return err
	}
	for _, c := range a.charges {
		if c.Store == a.Target.Resource.Store() || len(c.Ops) == 0 {
			continue
		}
		revision, err := c.Store.Commit(ctx, storage.Txn{Conditions: c.Conditions, Ops: c.Ops})
		if met := (*storage.ConflictError)(nil); errors.As(err, &met) {
			return &registry.Conflict{SideWrite: met}
		}
		if err != nil {
			return err
		}
		if c.Done != nil {
			c.Done(revision)
			c.Done = nil
		}
	}
	return nil
}

// allSideWrites returns all side writes for the transaction of the object.
func (a *attempt) allSideWrites() registry.SideWrites {
	all := a.sideWrites
	for _, c := range a.charges {
		if c.Store == a.Target.Resource.Store() {
			all.Conditions = append(all.Conditions[:len(all.Conditions):len(all.Conditions)], c.Conditions...)
			all.Ops = append(all.Ops[:len(all.Ops):len(all.Ops)], c.Ops...)
		}
	}
	return all
}

// charged reports whether a key belongs to the charges of this attempt.
func (a *attempt) charged(key string) bool {
	for _, c := range a.charges {
		for i := range c.Conditions {
			if c.Conditions[i].Key == key {
				return true
			}
		}
	}
	return false
}

// endCharges reports the end of the attempt to admission. A write that changed nothing, or that removed the object
// instead of changing it, has not written its charges.
func (a *attempt) endCharges(err error) {
	if len(a.charges) == 0 {
		return
	}
	var revision int64
	if o := a.result.Object; err == nil && !a.Options.DryRun && !a.result.Deleted && o != nil &&
		(a.found == nil || o.Revision != a.found.Revision) {
		revision = o.Revision
	}
	for _, c := range a.charges {
		if c.Done != nil {
			c.Done(revision)
			c.Done = nil
		}
	}
}
