package crd

import (
	"context"
	"maps"
	"slices"
	"sort"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeversion "k8s.io/apimachinery/pkg/version"

	"github.com/keelson-dev/keelson/discovery"
)

var (
	verbs            = metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	terminatingVerbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}
)

// Publish brings the groups of h up to date with what is served. It is cheap when
// nothing changed: groups are put together when somebody looks, not when a
// definition comes.
func (s *Server) Publish(h *discovery.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.stale {
		if s.o.Rest.Knows(name) {
			continue // a built-in group shows its own resources alone
		}
		if g := s.discoveryGroup(name); g != nil {
			h.Set(g)
		} else {
			h.Remove(name)
		}
	}
	clear(s.stale)
}

// discoveryGroup puts together a group; nil if none of its versions is to be served.
// The versions of a definition that is not established are announced. mu is held.
func (s *Server) discoveryGroup(name string) *discovery.Group {
	byVersion := map[string][]metav1.APIResource{}
	for _, definition := range slices.Sorted(maps.Keys(s.groups[name])) {
		d := s.groups[name][definition]
		for i := range d.versions {
			v := &d.versions[i]
			if !v.served {
				continue
			}
			var resources []metav1.APIResource
			if d.status.established() {
				resources = d.resources(v)
			}
			byVersion[v.name] = append(byVersion[v.name], resources...)
		}
	}
	if len(byVersion) == 0 {
		return nil
	}
	g := &discovery.Group{Name: name, Priority: discovery.PriorityCustom, Dynamic: true}
	for name, resources := range byVersion {
		g.Versions = append(g.Versions, discovery.Version{Name: name, Resources: resources, Announced: len(resources) == 0})
	}
	sort.Slice(g.Versions, func(i, j int) bool {
		return kubeversion.CompareKubeAwareVersionStrings(g.Versions[i].Name, g.Versions[j].Name) > 0
	})
	return g
}

// resources are a version's resource and its subresources.
func (d *definition) resources(v *version) []metav1.APIResource {
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
		out = append(out, metav1.APIResource{Name: n.Plural + "/status", Namespaced: namespaced, Kind: n.Kind, Verbs: statusVerbs})
	}
	if v.scale {
		out = append(out, metav1.APIResource{
			Name: n.Plural + "/scale", Namespaced: namespaced, Verbs: statusVerbs,
			Group: scaleKind.Group, Version: scaleKind.Version, Kind: scaleKind.Kind,
		})
	}
	return out
}

// storageHash names the stored version. It is left out where that is not served.
func (d *definition) storageHash() string {
	for i := range d.versions {
		if v := &d.versions[i]; v.storage && v.served {
			return discovery.StorageVersionHash(d.group, v.name, d.names.Kind)
		}
	}
	return ""
}

// count notes that a definition serves its versions, or does not any more. mu is
// held.
func (s *Server) count(d *definition, by int) {
	if d == nil {
		return
	}
	for i := range d.versions {
		if !d.versions[i].served {
			continue
		}
		gv := schema.GroupVersion{Group: d.group, Version: d.versions[i].name}
		before := s.versions[gv]
		if s.versions[gv] += by; s.versions[gv] == 0 {
			delete(s.versions, gv)
		}
		if before > 0 != (s.versions[gv] > 0) {
			s.changed[gv] = true
		}
	}
	if len(s.changed) > 0 {
		select {
		case s.changes <- struct{}{}:
		default:
		}
	}
}

// Changes waits until versions of groups came or went, and returns for each whether
// it is served now. The first call returns all that are. It is for one caller.
func (s *Server) Changes(ctx context.Context) (map[schema.GroupVersion]bool, error) {
	if err := s.Ready(ctx); err != nil {
		return nil, err
	}
	for {
		s.mu.Lock()
		// The caller gets the map; later changes go to another one.
		changed, first := s.changed, !s.told
		s.changed, s.told = map[schema.GroupVersion]bool{}, true
		for gv := range changed {
			changed[gv] = s.versions[gv] > 0
		}
		s.mu.Unlock()
		if first || len(changed) > 0 {
			return changed, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.changes:
		}
	}
}
