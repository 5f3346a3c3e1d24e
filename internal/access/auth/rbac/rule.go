package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// rule is a PolicyRule. Its flags are true if the list contains a wildcard.
type rule struct {
	*rbacv1.PolicyRule
	anyVerb, anyGroup, anyResource, anyURL bool
}

func compile(rules []rbacv1.PolicyRule) []rule {
	out := make([]rule, len(rules))
	for i := range rules {
		r := &rules[i]
		out[i] = rule{
			PolicyRule: r,
			anyVerb:    has(r.Verbs, rbacv1.VerbAll), anyGroup: has(r.APIGroups, rbacv1.APIGroupAll),
			anyResource: has(r.Resources, rbacv1.ResourceAll), anyURL: has(r.NonResourceURLs, rbacv1.NonResourceAll),
		}
	}
	return out
}

// allows reports whether the rule allows the request. It does not allocate, because it is
// called for every request.
func (r *rule) allows(i *request.Info) bool {
	if !r.anyVerb && !has(r.Verbs, i.Verb) {
		return false
	}
	if !i.IsResource() {
		return r.anyURL || coversURL(r.NonResourceURLs, i.Path)
	}
	return (r.anyGroup || has(r.APIGroups, i.Group)) &&
		(r.anyResource || r.hasResource(i.Resource, i.Subresource)) &&
		(len(r.ResourceNames) == 0 || has(r.ResourceNames, i.Name))
}

// hasResource reports whether the rule lists the resource as "resource",
// "resource/subresource" or "*/subresource".
func (r *rule) hasResource(resource, subresource string) bool {
	if subresource == "" {
		return has(r.Resources, resource)
	}
	for _, e := range r.Resources {
		rest, ok := strings.CutSuffix(e, subresource)
		if !ok || rest == "" || rest[len(rest)-1] != '/' {
			continue
		}
		if rest = rest[:len(rest)-1]; rest == resource || rest == rbacv1.ResourceAll {
			return true
		}
	}
	return false
}

func coversURL(urls []string, path string) bool {
	for _, u := range urls {
		if u == path || strings.HasSuffix(u, "*") && strings.HasPrefix(path, strings.TrimRight(u, "*")) {
			return true
		}
	}
	return false
}

// has is slices.Contains as a simple loop, which is faster here.
func has(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

// Rules are compiled rules. They are immutable.
type Rules []rule

// Compile returns compiled rules. It keeps references to the given rules.
func Compile(rules []rbacv1.PolicyRule) Rules { return compile(rules) }

// Allow reports whether one of the rules allows the request.
func (r Rules) Allow(i *request.Info) bool {
	for n := range r {
		if r[n].allows(i) {
			return true
		}
	}
	return false
}
