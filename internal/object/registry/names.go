package registry

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names are the names of a kind for clients, discovery and messages.
type Names struct {
	// Group is the API group; "" is the core group.
	Group string
	// Package is the name of the group's Go package in kube-apiserver's messages ("core" in *core.PodList).
	Package string
	// Resource is the plural name in URLs ("pods"), Singular the singular one ("pod"); an empty Singular is Name in lower
	// case.
	Resource, Singular string
	// Name is the kind ("Pod"), ListName the kind of its lists; an empty ListName is Name+"List".
	Name, ListName string
	// ShortNames and Categories are alternatives to Resource in kubectl ("po", "all").
	ShortNames, Categories []string
	Namespaced             bool
}

// GroupResource names the kind's resource.
func (n *Names) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: n.Group, Resource: n.Resource}
}

// GroupKind names the kind.
func (n *Names) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: n.Group, Kind: n.Name}
}

// GVK returns the group, version and kind for a served version.
func (n *Names) GVK(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: n.Group, Version: version, Kind: n.Name}
}

// SingularName returns the singular name of the resource.
func (n *Names) SingularName() string {
	if n.Singular != "" {
		return n.Singular
	}
	return strings.ToLower(n.Name)
}

// List returns the kind of a list.
func (n *Names) List() string {
	if n.ListName != "" {
		return n.ListName
	}
	return n.Name + "List"
}
