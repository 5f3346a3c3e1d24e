package registry

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// Served is one version of a resource as clients name it. A resource that is served in two groups has
// one for each.
type Served struct {
	Kind     *Kind
	Resource *Resource
	Version  *Version
	// GVK and GVR are the kind and the resource by the names of the request.
	GVK schema.GroupVersionKind
	GVR schema.GroupVersionResource
	// Creates refuses new objects while it is closed: the definition of the resource is being deleted. It is nil for a
	// resource without a definition.
	Creates *Gate
	// JSONHead is the beginning of the JSON of an object, before its item JSON (see ItemJSON).
	JSONHead []byte
}

// NewServed returns the resource in a version of its kind.
func NewServed(r *Resource, v *Version) *Served {
	gv := r.Kind.GroupVersion(v)
	s := &Served{Kind: r.Kind, Resource: r, Version: v, GVK: gv.WithKind(r.Kind.Name), GVR: gv.WithResource(r.Kind.Resource)}
	s.JSONHead = scheme.JSONHead(s.GVK)
	if r.Kind.Unstructured() { // its item JSON contains apiVersion and kind
		s.JSONHead = []byte("{")
	}
	return s
}

// Requests returns the Requests that apply to the version.
func (s *Served) Requests() *Requests {
	if s.Version.Requests != nil {
		return s.Version.Requests
	}
	return &s.Kind.Requests
}

// Metadata returns the rules of metadata for writes in the version.
func (s *Served) Metadata() *Metadata {
	if s.Version.Metadata != nil {
		return s.Version.Metadata
	}
	return &s.Kind.Metadata
}

// Decoder returns the decoder of documents of the kind from clients.
func (s *Served) Decoder() scheme.Decoder {
	return scheme.Decoder{
		GVK: s.GVK, Tree: s.Kind.Unstructured(), Internal: s.Kind.Package + "." + s.Kind.Name,
		New: func() runtime.Object { return s.Version.New() },
	}
}

// Coerce removes from a decoded object what the schema of the version does not know, and returns a strict error for
// each field removed if track is set.
func (s *Served) Coerce(obj Object, track bool) (strict []error, err error) {
	if s.Version.Coerce == nil {
		return nil, nil
	}
	unknown, err := s.Version.Coerce(obj, track)
	for _, path := range unknown {
		strict = append(strict, fmt.Errorf("unknown field %q", path))
	}
	return strict, err
}

// GroupResource names the resource as the request does.
func (s *Served) GroupResource() schema.GroupResource { return s.GVR.GroupResource() }

// Stored names the kind and the resource in the version that objects are stored in.
func (s *Served) Stored() (schema.GroupVersionKind, schema.GroupVersionResource) {
	gv := schema.GroupVersion{Group: s.Kind.Group, Version: s.Kind.Storage.Version}
	return gv.WithKind(s.Kind.Name), gv.WithResource(s.Kind.Resource)
}

// KindOf returns the kind that a subresource takes and returns.
func (s *Served) KindOf(sub *Subresource) schema.GroupVersionKind {
	switch {
	case sub == nil || sub.GVK.Kind == "":
		return s.GVK
	case sub.GVK.Version == "":
		return s.GVK.GroupVersion().WithKind(sub.GVK.Kind)
	}
	return sub.GVK
}
