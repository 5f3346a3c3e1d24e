// Package discovery serves what clients ask to find out which API groups, versions and resources there are: /api,
// /apis and the paths below them down to a version, one by one and as one aggregated document (KEP-3352).
//
// It shows what is in the directory of served resources. Documents are made on first use, encoded once per media type
// and kept until their group changes.
package discovery

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeversion "k8s.io/apimachinery/pkg/version"

	"github.com/keelson-dev/keelson/directory"
)

// group is an API group as discovery shows it.
type group struct {
	name string
	// versions are in the order of preference.
	versions []version
	// builtIn groups answer a version that they do not have with a Status; the versions of other groups come and go,
	// and one that is missing gets the plain text of an unknown path.
	builtIn bool
}

// version is one version of a group.
type version struct {
	name string
	// resources are ordered by name, each followed by its subresources. Without any, the version has no document of
	// its own and is left out of the aggregated document.
	resources []metav1.APIResource
}

// newGroup reads a group from the directory. It returns nil if the group has no versions. If resources of the group
// are built in, custom ones in the same group are not shown.
func newGroup(d *directory.Directory, name string) *group {
	g := &group{name: name, builtIn: d.HasSource(name, directory.BuiltIn)}
	for _, v := range d.Versions(name) {
		resources, found := discoveryResources(d.Resources(schema.GroupVersion{Group: name, Version: v}), g.builtIn)
		if found {
			g.versions = append(g.versions, version{v, resources})
		}
	}
	if len(g.versions) == 0 {
		return nil
	}
	slices.SortFunc(g.versions, func(a, b version) int { return kubeversion.CompareKubeAwareVersionStrings(b.name, a.name) })
	return g
}

// describe returns what discovery shows of the resources of a version, only of built-in ones if builtIn is set; and
// whether there are such resources, of which some may show nothing.
func discoveryResources(resources []*directory.Resource, builtIn bool) (out []metav1.APIResource, found bool) {
	if builtIn {
		resources = slices.DeleteFunc(resources, func(r *directory.Resource) bool { return r.Source != directory.BuiltIn })
	}
	// kube-apiserver orders custom resources by the names of their definitions, "widgets.example.com".
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

// customPriority is the priority of a group of custom resources.
const customPriority = 1000

// priorities of the built-in groups: groupPriorityMinimum of their APIServices.
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

// Priority returns the priority of a group. Groups are shown in the order of their priorities, the highest first, and
// those of one priority in the order of their names.
func Priority(group string) int {
	if p, ok := priorities[group]; ok {
		return p
	}
	return customPriority
}

func sortGroups(groups []*group) {
	slices.SortFunc(groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(Priority(b.name), Priority(a.name)), cmp.Compare(a.name, b.name))
	})
}
