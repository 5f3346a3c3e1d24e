package registry

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Served is one version of a resource as clients name it. A resource that is served in two groups has
// one for each.
type Served struct {
	*Resource
	Version *Version
	// GVK and GVR are the kind and the resource by the names of the request.
	GVK schema.GroupVersionKind
	GVR schema.GroupVersionResource
	// Terminating refuses new objects: the definition of the resource is being deleted.
	Terminating bool
}

// NewServed returns the resource in a version of its kind.
func NewServed(r *Resource, v *Version) *Served {
	gv := r.Kind.GroupVersion(v)
	return &Served{Resource: r, Version: v, GVK: gv.WithKind(r.Kind.Name), GVR: gv.WithResource(r.Kind.Resource)}
}

// GroupResource names the resource as the request does.
func (s *Served) GroupResource() schema.GroupResource { return s.GVR.GroupResource() }

// Stored names the kind and the resource in the version that objects are stored in.
func (s *Served) Stored() (schema.GroupVersionKind, schema.GroupVersionResource) {
	gv := schema.GroupVersion{Group: s.Kind.Group, Version: s.Kind.Storage.Version}
	return gv.WithKind(s.Kind.Name), gv.WithResource(s.Kind.Resource)
}

// KindOf is the kind of what a subresource takes and returns.
func (s *Served) KindOf(sub *Subresource) schema.GroupVersionKind {
	switch {
	case sub == nil || sub.GVK.Kind == "":
		return s.GVK
	case sub.GVK.Version == "":
		return s.GVK.GroupVersion().WithKind(sub.GVK.Kind)
	}
	return sub.GVK
}
