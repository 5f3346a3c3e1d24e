package kubectlhistory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
)

// resource is a resource of the server in one version.
type resource struct {
	Group, Version, Name, Singular, Kind string
	ShortNames, Verbs                    []string
	Namespaced                           bool
}

// String returns the resource with its group, such as deployments.apps.
func (r resource) String() string {
	if r.Group == "" {
		return r.Name
	}
	return r.Name + "." + r.Group
}

func (r resource) isNamespace() bool { return r.Group == "" && r.Kind == "Namespace" }

func (r resource) isDefinition() bool {
	return r.Group == "apiextensions.k8s.io" && r.Kind == "CustomResourceDefinition"
}

// objectName returns the name of an object with its resource, as kubectl prints it: deployment.apps/web.
func (r resource) objectName(name string) string {
	singular := strings.ToLower(r.Kind)
	if r.Group != "" {
		singular += "." + r.Group
	}
	return singular + "/" + name
}

// apiVersion returns the apiVersion of the objects.
func (r resource) apiVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// path returns the URL path of an object, or of the collection if name is "". The namespace "" means all
// namespaces.
func (r resource) path(namespace, name string, subresource ...string) string {
	path := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		path = "/api/" + r.Version
	}
	if r.Namespaced && namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	path += "/" + r.Name
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	for _, s := range subresource {
		path += "/" + s
	}
	return path
}

// catalog has the resources of a server in the order of discovery. The preferred version of a group comes first.
type catalog []resource

// discover returns the resources that the server has.
func (c *client) discover(ctx context.Context) (catalog, error) {
	const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	var out catalog
	for _, path := range []string{"/api", "/apis"} {
		body, err := c.request(ctx, http.MethodGet, path, nil, accept, nil)
		if err != nil {
			return nil, err
		}
		var list apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(body, &list); err != nil || list.Kind != "APIGroupDiscoveryList" {
			return nil, errors.New("the server has no aggregated discovery, and therefore no history: it is not Keelson")
		}
		for _, g := range list.Items {
			for _, v := range g.Versions {
				for _, r := range v.Resources {
					if r.ResponseKind == nil {
						continue
					}
					out = append(out, resource{
						Group: g.Name, Version: v.Version, Name: r.Resource, Singular: r.SingularResource, Kind: r.ResponseKind.Kind,
						ShortNames: r.ShortNames, Verbs: r.Verbs, Namespaced: r.Scope == apidiscovery.ScopeNamespace,
					})
				}
			}
		}
	}
	return out, nil
}

// find returns the resource with this plural, singular or short name, or kind. The name may also contain the group
// (deployments.apps) or version and group (deployments.v1.apps).
func (c catalog) find(name string) (resource, error) {
	base, qualifier, _ := strings.Cut(strings.ToLower(name), ".")
	qualified := func(r resource) bool {
		version, group, _ := strings.Cut(qualifier, ".")
		return qualifier == "" || qualifier == r.Group || version == r.Version && group == r.Group
	}
	for _, is := range []func(r resource) bool{
		func(r resource) bool { return r.Name == base || r.Singular == base },
		func(r resource) bool { return slices.Contains(r.ShortNames, base) },
		func(r resource) bool { return strings.ToLower(r.Kind) == base },
	} {
		for _, r := range c {
			if base != "" && qualified(r) && is(r) {
				return r, nil
			}
		}
	}
	return resource{}, fmt.Errorf("the server has no resource type %q", name)
}

// findAll returns the resources of a list of names that are separated by commas.
func (c catalog) findAll(names string) (out []resource, err error) {
	for _, name := range strings.Split(names, ",") {
		r, err := c.find(name)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(other resource) bool { return other.Group == r.Group && other.Name == r.Name }) {
			out = append(out, r)
		}
	}
	return out, nil
}

// ofKind returns the resource of a kind, in the version that is named if there is one, or else in the preferred one.
func (c catalog) ofKind(apiVersion, kind string) (resource, bool) {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		group = ""
	}
	is := func(r resource) bool { return r.Group == group && r.Kind == kind }
	if i := slices.IndexFunc(c, func(r resource) bool { return is(r) && r.apiVersion() == apiVersion }); i >= 0 {
		return c[i], true
	}
	if i := slices.IndexFunc(c, is); i >= 0 {
		return c[i], true
	}
	return resource{}, false
}

// splitArgs returns the resource type and the names in arguments such as `pod a b`, `pod/a` or `pod/a pod/b`. All
// objects must have the same type.
func splitArgs(args []string) (kind string, names []string, err error) {
	if len(args) == 0 {
		return "", nil, errors.New("name the resource type, for example deployments or deployments.apps")
	}
	if !strings.Contains(args[0], "/") {
		for _, name := range args[1:] {
			if strings.Contains(name, "/") {
				return "", nil, fmt.Errorf("the name %q has a slash; write either TYPE NAME or TYPE/NAME", name)
			}
		}
		return args[0], args[1:], checkNames(args)
	}
	for _, arg := range args {
		k, name, found := strings.Cut(arg, "/")
		switch {
		case !found || k == "" || name == "" || strings.Contains(name, "/"):
			return "", nil, fmt.Errorf("%q must be TYPE/NAME", arg)
		case kind != "" && kind != k:
			return "", nil, fmt.Errorf("all objects must be of one type, but there are %s and %s", kind, k)
		}
		kind, names = k, append(names, name)
	}
	return kind, names, checkNames(names)
}

// checkNames returns an error for a name that no object can have.
func checkNames(names []string) error {
	for _, name := range names {
		if name == "" || name == "." || name == ".." {
			return fmt.Errorf("%q is not a name", name)
		}
	}
	return nil
}

// oneOf returns the resource and the name in arguments that name one object.
func (s *session) oneOf(args []string) (r resource, name string, err error) {
	kind, name, err := splitOne(args)
	if err == nil {
		r, err = s.catalog.find(kind)
	}
	return r, name, err
}

// splitOne returns the resource type and the name in arguments that name one object.
func splitOne(args []string) (kind, name string, err error) {
	kind, names, err := splitArgs(args)
	if err == nil && len(names) != 1 {
		err = fmt.Errorf("name one object: %s NAME, or %[1]s/NAME", kind)
	}
	if err != nil {
		return "", "", err
	}
	return kind, names[0], nil
}
