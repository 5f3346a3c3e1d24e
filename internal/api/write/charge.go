package write

import (
	"context"
	"errors"
	"slices"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

// errUnfinished is the error that endCharges gets if a panic has ended the write.
var errUnfinished = errors.New("the write did not finish")

// charge gets the charges of the write from admission, such as the new usage of quotas. They are committed in the
// transaction of the object. Charges in another store are committed here, before the object.
func (a *attempt) charge(ctx context.Context) (err error) {
	a.charges = nil
	if a.approved == nil {
		return nil
	}
	a.approved.Conflicts = a.conflicts
	if a.charges, err = a.admission.Charge(ctx, a.approved); err != nil || a.Options.DryRun {
		return err
	}
	return a.charges.commitElsewhere(ctx, a.Target.Resource.Store())
}

// endCharges reports the end of the attempt to admission. Its charges were not written if the write has changed
// nothing or has removed the object.
func (a *attempt) endCharges(err error) {
	var revision int64
	if o := a.result.Object; err == nil && !a.Options.DryRun && !a.result.Deleted && o != nil &&
		(a.found == nil || o.Revision != a.found.Revision) {
		revision = o.Revision
	}
	a.charges.end(revision)
}

// charges are entries that admission writes together with an object, such as the usage of quotas. The Done of each
// has to be called.
type charges []*admission.Charge

// commitElsewhere commits the charges that belong to another store than own, the store of the object. If the
// commit of the object fails afterwards, these charges stay. The usage is then too high until the quota is
// counted again.
func (cs charges) commitElsewhere(ctx context.Context, own storage.Store) error {
	for _, c := range cs {
		if c.Store == own || len(c.Ops) == 0 {
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

// with returns the side writes for the transaction of the object: all, and the charges that belong to own, the
// store of the object. The capacity of the lists in all is cut, so that append copies them: a repeated commit
// must not find the charges of an earlier attempt in them.
func (cs charges) with(all registry.SideWrites, own storage.Store) registry.SideWrites {
	for _, c := range cs {
		if c.Store == own {
			all.Conditions = append(all.Conditions[:len(all.Conditions):len(all.Conditions)], c.Conditions...)
			all.Ops = append(all.Ops[:len(all.Ops):len(all.Ops)], c.Ops...)
		}
	}
	return all
}

// have reports whether a key belongs to the charges.
func (cs charges) have(key string) bool {
	return slices.ContainsFunc(cs, func(c *admission.Charge) bool {
		return slices.ContainsFunc(c.Conditions, func(condition storage.Condition) bool { return condition.Key == key })
	})
}

// end calls the Done of each charge once. revision is the revision of the write, or 0 if nothing was written.
func (cs charges) end(revision int64) {
	for _, c := range cs {
		if c.Done != nil {
			c.Done(revision)
			c.Done = nil
		}
	}
}
