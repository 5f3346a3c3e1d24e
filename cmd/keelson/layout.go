package main

import (
	"strings"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
)

// layout finds the resource of a key in the store.
type layout struct {
	kinds map[string]*registry.Kind // by Storage.Path
}

func newLayout() *layout {
	l := &layout{kinds: map[string]*registry.Kind{}}
	for _, k := range resource.Kinds(features.All()) {
		if k.Storage.Path != "" {
			l.kinds[k.Storage.Path] = k
		}
	}
	return l
}

// keyParts are the parts of a key: resource, namespace and name.
type keyParts struct {
	kind *registry.Kind // nil if it is not a built-in kind
	// path is the part of the key between the root and the object: Kind.Storage.Path, or group/plural of a custom
	// resource.
	path string
	// custom means that the key has the format of a custom resource.
	custom bool
	// rest is [namespace/]name.
	rest string
}

// find splits a key. It returns false if the key does not begin with the root.
func (l *layout) find(key string) (keyParts, bool) {
	below, ok := strings.CutPrefix(key, registry.Root)
	if !ok {
		return keyParts{}, false
	}
	first, rest, _ := strings.Cut(below, "/")
	if second, after, ok := strings.Cut(rest, "/"); ok {
		if k := l.kinds[first+"/"+second]; k != nil {
			return keyParts{kind: k, path: k.Storage.Path, rest: after}, true
		}
		if l.kinds[first] == nil && strings.Contains(first, ".") {
			return keyParts{path: first + "/" + second, custom: true, rest: after}, true
		}
	}
	return keyParts{kind: l.kinds[first], path: first, rest: rest}, true
}

// resource returns the resource of a key as kubectl writes it (deployments.apps).
func (l *layout) resource(key string) string {
	p, ok := l.find(key)
	switch {
	case !ok:
		return "(not below " + registry.Root + ")"
	case p.kind != nil:
		return p.kind.GroupResource().String()
	case p.custom:
		group, plural, _ := strings.Cut(p.path, "/")
		return plural + "." + group
	}
	return p.path
}
