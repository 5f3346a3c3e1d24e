package registry

import (
	"context"

	"github.com/keelson-dev/keelson/internal/storage"
)

// An Allocator gives the objects of a resource what no two of them may have, and
// takes it back. What it takes and gives is written in the transaction of the object:
// either both are, or neither is.
type Allocator interface {
	// Allocate completes a new object, or one that replaces another, before it is
	// prepared and validated. It may be called again for the same write, with the
	// object as it was sent. Errors are those to answer.
	Allocate(ctx context.Context, a Allocation) (SideWrites, error)
	// Release returns the side writes for an object that is removed. conflicts are as in Allocation.
	Release(ctx context.Context, obj Object, conflicts []*storage.ConflictError) (SideWrites, error)
}

// Allocation is one write of an object.
type Allocation struct {
	// Object is the new object, completed; Old is the object that it replaces, nil for a create.
	Object, Old Object
	// DryRun takes nothing: it shows what might be allocated.
	DryRun bool
	// Conflicts are the failed side writes of earlier attempts at this write, in order. Their values are newer than
	// what the Allocator may have in memory.
	Conflicts []*storage.ConflictError
}

// SideWrites are conditions and operations that are committed together with an object. They must not contain the
// object's own key.
type SideWrites struct {
	Conditions []storage.Condition
	Ops        []storage.Op
}

// with adds the side writes to the transaction of the object.
func (w *SideWrites) with(txn storage.Txn) storage.Txn {
	txn.Conditions = append(txn.Conditions, w.Conditions...)
	txn.Ops = append(txn.Ops, w.Ops...)
	return txn
}
