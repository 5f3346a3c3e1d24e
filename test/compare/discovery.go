package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// collectDiscovery returns the aggregated documents by group, version, resource and subresource, with the storage version
// hashes of the documents of each version. kube-apiserver compares groups and versions by their order in clients.
func collectDiscovery(ctx context.Context, _ *comparison, s *server) (map[string]any, error) {
	var groups order
	out := map[string]any{}
	for _, path := range []string{"/api", "/apis"} {
		doc, err := s.get(ctx, path, aggregated)
		if err != nil {
			return nil, err
		}
		for _, g := range items(doc["items"]) {
			name := text(dig(g, "metadata", "name"))
			var versions order
			group := map[string]any{}
			for _, v := range items(g["versions"]) {
				version := text(v["version"])
				versions = append(versions, version)
				content, err := s.versionOf(ctx, groupVersionPath(name, version), v)
				if err != nil {
					return nil, err
				}
				group[version] = content
			}
			group["order of versions"] = versions
			out[groupName(name)] = group
			groups = append(groups, name)
		}
	}
	out["order of groups"] = groups
	preferred, err := s.get(ctx, "/apis", "")
	if err != nil {
		return nil, err
	}
	for _, g := range items(preferred["groups"]) {
		if group, ok := out[text(g["name"])].(map[string]any); ok {
			group["preferred version"] = dig(g, "preferredVersion", "version")
		}
	}
	return out, nil
}

// versionOf returns what the discovery documents have about a version; v is its part of the aggregated document.
func (s *server) versionOf(ctx context.Context, path string, v map[string]any) (map[string]any, error) {
	doc, err := s.get(ctx, path, "")
	if err != nil {
		return nil, err
	}
	hashes := map[string]any{}
	for _, r := range items(doc["resources"]) {
		hashes[text(r["name"])] = r["storageVersionHash"]
	}
	out := map[string]any{"freshness": v["freshness"]}
	for _, r := range items(v["resources"]) {
		name := text(r["resource"])
		subresources := map[string]any{}
		for _, sub := range items(r["subresources"]) {
			subresources[text(sub["subresource"])] = sub
		}
		r["subresources"], r["storageVersionHash"] = subresources, hashes[name]
		out[name] = r
	}
	return out, nil
}

// groupName is the name of a group in the output.
func groupName(group string) string {
	if group == "" {
		return "core"
	}
	return group
}

func groupVersionPath(group, version string) string {
	if group == "" {
		return "/api/" + version
	}
	return "/apis/" + group + "/" + version
}

// A kind is a resource in a version, by the documents of kube-apiserver.
type kind struct {
	group, version, kind, resource string
	namespaced                     bool
	verbs                          []string
}

// name is the name of a kind in the output.
func (k kind) name() string { return groupName(k.group) + " " + k.version + " " + k.kind }

func (k kind) has(verb string) bool { return slices.Contains(k.verbs, verb) }

// path returns the path of the collection; namespace is used if there are namespaces.
func (k kind) path(namespace string) string {
	path := groupVersionPath(k.group, k.version)
	if k.namespaced && namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.resource
}

// commonKinds returns the resources in their versions that both servers have. What only one has is a difference of the section
// discovery.
func (c *comparison) commonKinds(ctx context.Context) ([]kind, error) {
	if c.kinds != nil {
		return c.kinds, nil
	}
	var lists [2][]kind
	for i, s := range c.servers() {
		for _, path := range []string{"/api", "/apis"} {
			doc, err := s.get(ctx, path, aggregated)
			if err != nil {
				return nil, err
			}
			lists[i] = append(lists[i], kindsIn(doc)...)
		}
	}
	for _, k := range lists[0] {
		if slices.ContainsFunc(lists[1], func(o kind) bool { return o.path("") == k.path("") }) {
			c.kinds = append(c.kinds, k)
		}
	}
	if len(c.kinds) == 0 {
		return nil, fmt.Errorf("the servers have no resource in common")
	}
	return c.kinds, nil
}

func kindsIn(doc map[string]any) (out []kind) {
	for _, g := range items(doc["items"]) {
		for _, v := range items(g["versions"]) {
			for _, r := range items(v["resources"]) {
				verbs, _ := r["verbs"].([]any)
				names, _ := texts(verbs)
				out = append(out, kind{
					group: text(dig(g, "metadata", "name")), version: text(v["version"]), kind: text(dig(r, "responseKind", "kind")),
					resource: text(r["resource"]), namespaced: text(r["scope"]) == "Namespaced", verbs: names,
				})
			}
		}
	}
	return out
}

// collectWarnings returns the warnings of a list of each resource, which are about deprecated versions.
func collectWarnings(ctx context.Context, c *comparison, s *server) (map[string]any, error) {
	kinds, err := c.commonKinds(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, k := range kinds {
		if !k.has("list") {
			continue
		}
		r, err := s.do(ctx, request{method: http.MethodGet, path: k.path("") + "?limit=1"})
		if err != nil {
			return nil, err
		}
		out[k.name()] = map[string]any{"status": r.status, "warnings": strings.Join(r.warnings, "; ")}
	}
	return out, nil
}

// asJSON returns a body as JSON, or as a text if it is none.
func asJSON(body []byte) any {
	var v any
	if json.Valid(body) && decode(body, &v) == nil {
		return v
	}
	return string(body)
}
