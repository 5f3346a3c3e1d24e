package registry

import (
	"context"

	"github.com/keelson-dev/keelson/internal/storage"
)

// An Allocator allocates values that no two objects may have, such as the cluster IPs and node ports of Services,
// and releases them. It returns side writes, which are committed in the same transaction as the object: either
// both are committed or neither.
type Allocator interface {
	// Allocate completes a new object, or one that replaces another, before it is prepared and validated. It may
	// be called again for the same write, with the object as it was sent. Its errors are returned to the client.
	Allocate(ctx context.Context, a Allocation) (SideWrites, error)
	// Release returns the side writes for an object that is removed. conflicts are as in Allocation.
	Release(ctx context.Context, obj Object, conflicts []*storage.ConflictError) (SideWrites, error)
}

// Allocation is one write of an object.
type Allocation struct {
	// Object is the new object, completed; Old is the object that it replaces, nil for a create.
	Object, Old Object
	// DryRun means that nothing is taken: the object only shows what might be allocated.
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
