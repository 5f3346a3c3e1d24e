package discovery

import (
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a resource as discovery shows it.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Verbs      []string
	// Remote means that an extension API server serves the resource.
	Remote bool
}

// Preferred returns every resource of every group once. Its version is the most preferred one of the group that
// has the resource. stale has the versions of extension API servers whose resources are not known at present.
func (h *Handler) Preferred() (resources []Resource, stale []schema.GroupVersion) {
	for _, g := range h.view().groups {
		seen := map[string]bool{}
		for i := range g.group.versions {
			v := &g.group.versions[i]
			if v.remote != nil && v.remote.Stale {
				stale = append(stale, schema.GroupVersion{Group: g.group.name, Version: v.name})
				continue
			}
			for _, r := range v.list(g.group.name) {
				if !seen[r.Resource] {
					seen[r.Resource] = true
					resources = append(resources, r)
				}
			}
		}
	}
	return resources, stale
}

// OfKind returns the resource with objects of a kind. It returns false if discovery shows none.
func (h *Handler) OfKind(gvk schema.GroupVersionKind) (Resource, bool) {
	g := h.view().groups[gvk.Group]
	if g == nil {
		return Resource{}, false
	}
	for i := range g.group.versions {
		if v := &g.group.versions[i]; v.name == gvk.Version {
			for _, r := range v.list(gvk.Group) {
				if r.Kind == gvk.Kind {
					return r, true
				}
			}
		}
	}
	return Resource{}, false
}

// list returns the resources of a version, without subresources.
func (v *version) list(group string) []Resource {
	var out []Resource
	gv := schema.GroupVersion{Group: group, Version: v.name}
	if v.remote != nil {
		for i := range v.remote.Resources {
			r := &v.remote.Resources[i]
			if r.ResponseKind == nil || len(r.Verbs) == 0 {
				continue // only its subresources are listed
			}
			out = append(out, Resource{
				GroupVersionResource: gv.WithResource(r.Resource), Kind: r.ResponseKind.Kind,
				Namespaced: r.Scope == apidiscovery.ScopeNamespace, Verbs: r.Verbs, Remote: true,
			})
		}
		return out
	}
	for i := range v.resources {
		r := &v.resources[i]
		if strings.Contains(r.Name, "/") {
			continue
		}
		out = append(out, Resource{
			GroupVersionResource: gv.WithResource(r.Name), Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs,
		})
	}
	return out
}
