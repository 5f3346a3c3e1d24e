// Package discovery serves what the server serves: the API groups, their versions
// and resources, under /api and /apis, one by one and as one aggregated document
// (KEP-3352).
//
// Documents are made from declarations on first use, encoded once per media type
// and kept until the groups they show change.
package discovery

import (
	"crypto/sha256"
	"encoding/base64"
	"sort"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/keelson-dev/keelson/registry"
)

// Group is an API group as discovery shows it.
type Group struct {
	Name string
	// Priority orders groups, the highest first; equal ones by name.
	Priority int
	// Versions in order of preference.
	Versions []Version
	// Dynamic groups come and go while the server runs. A version that such a
	// group does not have is no API path at all: its answer is plain text.
	Dynamic bool
}

// Version is one version of a group.
type Version struct {
	Name string
	// Resources in the order of their names; subresources are of their own.
	Resources []metav1.APIResource
	// Stale says that the list comes from a server that does not answer now.
	Stale bool
	// Announced says that the version is known by name alone: documents of the group
	// show it, nothing is there yet.
	Announced bool
}

// PriorityCustom is the priority of a group of custom resources.
const PriorityCustom = 1000

// priorities are those of the built-in groups (groupPriorityMinimum of their
// APIServices).
var priorities = map[string]int{
	"":                             18000,
	"apiregistration.k8s.io":       18000,
	"apps":                         17800,
	"events.k8s.io":                17750,
	"authentication.k8s.io":        17700,
	"authorization.k8s.io":         17600,
	"autoscaling":                  17500,
	"batch":                        17400,
	"certificates.k8s.io":          17300,
	"networking.k8s.io":            17200,
	"policy":                       17100,
	"rbac.authorization.k8s.io":    17000,
	"storage.k8s.io":               16800,
	"admissionregistration.k8s.io": 16700,
	"apiextensions.k8s.io":         16700,
	"scheduling.k8s.io":            16600,
	"coordination.k8s.io":          16500,
	"node.k8s.io":                  16300,
	"discovery.k8s.io":             16200,
	"resource.k8s.io":              16200,
	"flowcontrol.apiserver.k8s.io": 16100,
}

// hashedVersion has the kinds whose storage version hash is, in the reference, not
// that of the version that is served.
var hashedVersion = map[schema.GroupKind]string{
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:               "v1beta1",
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}:        "v1beta1",
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicyBinding"}: "v1beta1",
}

// FromKinds returns the groups that the kinds make, in discovery's order.
func FromKinds(kinds []*registry.Kind) []*Group {
	groups := map[string]*Group{}
	for _, k := range kinds {
		for i := range k.Versions {
			v := &k.Versions[i]
			name := k.Group
			if v.Group != "" {
				name = v.Group
			}
			g := groups[name]
			if g == nil {
				g = &Group{Name: name, Priority: PriorityCustom}
				if p, ok := priorities[name]; ok {
					g.Priority = p
				}
				groups[name] = g
			}
			g.add(v.Name, resources(k, name, v.Name))
		}
	}
	out := make([]*Group, 0, len(groups))
	for _, g := range groups {
		g.sort()
		out = append(out, g)
	}
	sortGroups(out)
	return out
}

func (g *Group) add(name string, resources []metav1.APIResource) {
	for i := range g.Versions {
		if g.Versions[i].Name == name {
			g.Versions[i].Resources = append(g.Versions[i].Resources, resources...)
			return
		}
	}
	g.Versions = append(g.Versions, Version{Name: name, Resources: resources})
}

func (g *Group) sort() {
	sort.SliceStable(g.Versions, func(i, j int) bool {
		return version.CompareKubeAwareVersionStrings(g.Versions[i].Name, g.Versions[j].Name) > 0
	})
	for i := range g.Versions {
		r := g.Versions[i].Resources
		sort.Slice(r, func(a, b int) bool { return r[a].Name < r[b].Name })
	}
}

func sortGroups(groups []*Group) {
	sort.SliceStable(groups, func(i, j int) bool {
		if groups[i].Priority != groups[j].Priority {
			return groups[i].Priority > groups[j].Priority
		}
		return groups[i].Name < groups[j].Name
	})
}

// resources lists a kind and its subresources in one version.
func resources(k *registry.Kind, group, version string) []metav1.APIResource {
	verbs := k.Requests.Verbs
	if verbs == nil {
		verbs = registry.AllVerbs
	}
	out := make([]metav1.APIResource, 0, 1+len(k.Subresources))
	main := metav1.APIResource{
		Name: k.Resource, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Name,
		Verbs: verbs, ShortNames: k.ShortNames, Categories: k.Categories,
	}
	if k.Storage.Path != "" {
		storage := k.Storage.Version
		if v := hashedVersion[k.GroupKind()]; v != "" {
			storage = v
		}
		main.StorageVersionHash = StorageVersionHash(k.Group, storage, k.Name)
	}
	out = append(out, main)
	for i := range k.Subresources {
		s := &k.Subresources[i]
		if s.Name == "" { // how the resource itself is created
			continue
		}
		r := metav1.APIResource{Name: k.Resource + "/" + s.Name, Namespaced: k.Namespaced, Kind: k.Name, Verbs: s.Verbs}
		if s.GVK.Kind != "" {
			r.Kind = s.GVK.Kind
			if s.GVK.Group != group || s.GVK.Version != version {
				r.Group, r.Version = s.GVK.Group, s.GVK.Version
			}
		}
		out = append(out, r)
	}
	return out
}

// StorageVersionHash names the version that a kind is stored in, so that clients
// see when it changes.
func StorageVersionHash(group, version, kind string) string {
	const bytesKept = 8
	sum := sha256.Sum256([]byte(group + "/" + version + "/" + kind))
	return base64.StdEncoding.EncodeToString(sum[:bytesKept])
}
