package crd

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

var (
	verbs            = metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	terminatingVerbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}
)

// apiResources returns the discovery entries of a version: the resource and its subresources.
func (d *definition) apiResources(v *version) []metav1.APIResource {
	n := &d.status.names
	namespaced := d.scope == apiextensionsv1.NamespaceScoped
	main := metav1.APIResource{
		Name: n.Plural, SingularName: n.Singular, Namespaced: namespaced, Kind: n.Kind,
		Verbs: verbs, ShortNames: n.ShortNames, Categories: n.Categories,
		StorageVersionHash: d.storageHash(),
	}
	if d.terminating() {
		main.Verbs = terminatingVerbs
	}
	out := []metav1.APIResource{main}
	if v.status {
		out = append(
			out, metav1.APIResource{Name: n.Plural + "/status", Namespaced: namespaced, Kind: n.Kind, Verbs: statusVerbs},
		)
	}
	if v.scale {
		out = append(out, metav1.APIResource{
			Name: n.Plural + "/scale", Namespaced: namespaced, Verbs: statusVerbs,
			Group: scaleKind.Group, Version: scaleKind.Version, Kind: scaleKind.Kind,
		})
	}
	return out
}

// storageHash returns the storageVersionHash of discovery, or "" if the storage version is not served.
func (d *definition) storageHash() string {
	for i := range d.versions {
		if v := &d.versions[i]; v.storage && v.served {
			return registry.StorageVersionHash(d.group, v.name, d.names.Kind)
		}
	}
	return ""
}
