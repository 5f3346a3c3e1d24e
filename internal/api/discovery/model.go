// Package discovery serves the documents about API groups, versions and resources: /api, /apis and
// the paths below them down to a version, and the aggregated discovery documents (KEP-3352).
//
// The documents describe the directory of served resources. A document is made when it is first
// requested, encoded once per media type, and kept until its group changes.
package discovery

import (
	"cmp"
	"slices"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeversion "k8s.io/apimachinery/pkg/version"

	"github.com/keelson-dev/keelson/internal/api/directory"
)

// group is an API group in discovery.
type group struct {
	name string
	// versions are sorted by preference.
	versions []version
	// builtIn is true for built-in groups. The response for a missing version is a Status in a built-in group, and in
	// other groups the plain text for unknown paths.
	builtIn bool
	// priority sorts groups: it is the largest groupPriorityMinimum of the APIServices of the group.
	priority int
}

// version is one version of a group.
type version struct {
	name string
	// resources are sorted by name, each followed by its subresources. A version without
	// resources has no document and is not in the aggregated document.
	resources []metav1.APIResource
	// remote has the resources of the version on another server. It replaces resources; the other server also serves
	// the document of the version.
	remote *Remote
	// priority is the versionPriority of the APIService.
	priority int
}

// Registration is a version of a group, as an APIService declares it.
type Registration struct {
	schema.GroupVersion
	// GroupPriority and VersionPriority sort groups, and the versions of a group: higher ones come first.
	GroupPriority, VersionPriority int
	// Remote is set if another server serves the version.
	Remote *Remote
}

// Remote has the resources of one version on another server. It is immutable.
type Remote struct {
	Resources []apidiscovery.APIResourceDiscovery
	// ETag is the ETag with which the other server sent Resources; "" if it sent none.
	ETag string
	// Stale means that the other server does not answer.
	Stale bool
}

// Registrations are the APIServices.
type Registrations interface {
	// Registrations returns all of them.
	Registrations() []Registration
	// Changes returns a number that changes whenever the result of Registrations does.
	Changes() int64
}

// newGroup reads a group from the directory and from its registrations. It returns nil if the group has no versions.
// Custom resources in a group with built-in resources are omitted.
func newGroup(d *directory.Directory, name string, registered []Registration) *group {
	g := &group{name: name, builtIn: d.HasSource(name, directory.BuiltIn)}
	known := map[string]Registration{}
	for _, r := range registered {
		known[r.Version] = r
		g.priority = max(g.priority, r.GroupPriority)
		if r.Remote != nil {
			g.versions = append(g.versions, version{name: r.Version, remote: r.Remote, priority: r.VersionPriority})
		}
	}
	if len(registered) == 0 {
		g.priority = Priority(name)
	}
	for _, v := range d.Versions(name) {
		resources, found := discoveryResources(d.Resources(schema.GroupVersion{Group: name, Version: v}), g.builtIn)
		if found && known[v].Remote == nil {
			priority := customVersionPriority
			if r, ok := known[v]; ok || g.builtIn {
				priority = r.VersionPriority
			}
			g.versions = append(g.versions, version{name: v, resources: resources, priority: priority})
		}
	}
	if len(g.versions) == 0 {
		return nil
	}
	slices.SortFunc(g.versions, func(a, b version) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), kubeversion.CompareKubeAwareVersionStrings(b.name, a.name))
	})
	return g
}

// discoveryResources returns the entries of a version's resources, only of built-in ones if
// builtIn is true. found reports whether there are such resources, even if none of them has an
// entry.
func discoveryResources(resources []*directory.Resource, builtIn bool) (out []metav1.APIResource, found bool) {
	if builtIn {
		resources = slices.DeleteFunc(resources, func(r *directory.Resource) bool { return r.Source != directory.BuiltIn })
	}
	// kube-apiserver sorts custom resources by the names of their definitions ("widgets.example.com").
	slices.SortFunc(resources, func(a, b *directory.Resource) int {
		return cmp.Compare(a.GVR.Resource+".", b.GVR.Resource+".")
	})
	for _, r := range resources {
		if r.Describe != nil {
			out = append(out, r.Describe()...)
		}
	}
	return out, len(resources) > 0
}

// The priorities of the APIServices of custom resources. A version has them too while its APIService is not made yet.
const (
	customPriority        = 1000
	customVersionPriority = 100
)

// priorities are the priorities of the built-in groups: the groupPriorityMinimum of their
// APIServices.
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
	"internal.apiserver.k8s.io":    16000,
	"storagemigration.k8s.io":      15800,
}

// Priority returns the priority of a group. Groups are sorted by decreasing priority, and
// groups with the same priority by name.
func Priority(group string) int {
	if p, ok := priorities[group]; ok {
		return p
	}
	return customPriority
}

func sortGroups(groups []*group) {
	slices.SortFunc(groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.name, b.name))
	})
}
