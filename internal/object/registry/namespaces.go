package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// NamespaceState is whether a namespace takes new objects.
type NamespaceState int

const (
	NamespaceActive NamespaceState = iota
	NamespaceMissing
	NamespaceTerminating
)

// deletionTimestampPath is metadata.deletionTimestamp of an object's message.
var deletionTimestampPath = []int32{1, 9}

// NamespaceState returns the state of a namespace, read from its stored bytes because every create in it calls this.
func (re *Registry) NamespaceState(ctx context.Context, name string) (NamespaceState, error) {
	r := re.resources[schema.GroupResource{Resource: "namespaces"}]
	o, err := r.Reader.lookup(ctx, name)
	if err != nil || o == nil {
		return NamespaceMissing, err
	}
	deleting, err := wire.Find(o.Data, deletionTimestampPath)
	if err == nil && deleting.Found {
		return NamespaceTerminating, nil
	}
	return NamespaceActive, err
}

// NamespaceSince returns the revision at which a namespace was created, 0 if there is none.
func (re *Registry) NamespaceSince(ctx context.Context, name string) (int64, error) {
	o, err := re.resources[schema.GroupResource{Resource: "namespaces"}].Reader.lookup(ctx, name)
	if err != nil || o == nil {
		return 0, err
	}
	return o.CreateRevision, nil
}

// HasRevisionsOfNamespaces reports whether a revision of the resource can be compared with the one at which a namespace
// was created: both are in one store. With --etcd-servers-overrides they may not be.
func (re *Registry) HasRevisionsOfNamespaces(r *Resource) bool {
	namespaces := re.resources[schema.GroupResource{Resource: "namespaces"}]
	return namespaces != nil && namespaces.whole == r.whole
}
