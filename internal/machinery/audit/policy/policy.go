// Package policy decides what is recorded about a request. A policy is an ordered list of
// rules; the first rule that matches the request is used.
package policy

import (
	"slices"
	"strings"
	"sync/atomic"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Current is a Policy that may be replaced. Use is called before the first request.
type Current struct{ policy atomic.Pointer[Policy] }

// Use makes p the policy of all requests that begin from now on.
func (c *Current) Use(p *Policy) { c.policy.Store(p) }

// For returns the settings for a request. It is called once per request, so that all events of a request follow the
// same policy.
func (c *Current) For(i *request.Info, user *request.User) audit.Settings {
	return c.policy.Load().For(i, user)
}

// Policy is a compiled policy. It is immutable.
type Policy struct {
	rules    []rule
	fallback audit.Settings // if no rule matches
}

type rule struct {
	auditv1.PolicyRule
	settings audit.Settings
}

// New returns a Policy for a valid policy object.
func New(p *auditv1.Policy) *Policy {
	omit := audit.ParseStages(p.OmitStages)
	out := &Policy{fallback: audit.Settings{Omit: omit, OmitManagedFields: p.OmitManagedFields}}
	for _, r := range p.Rules {
		level, _ := audit.ParseLevel(r.Level)
		s := audit.Settings{Level: level, Omit: omit | audit.ParseStages(r.OmitStages),
			OmitManagedFields: p.OmitManagedFields}
		if r.OmitManagedFields != nil {
			s.OmitManagedFields = *r.OmitManagedFields
		}
		out.rules = append(out.rules, rule{r, s})
	}
	return out
}

// For returns the settings for a request. user is nil if the request is not authenticated. A response that may
// contain objects of any resource (request.Info.ShowsOthers) gets at most the level Metadata, whatever the rule
// for the request says. It may contain objects, such as Secrets, that other rules keep out of the log.
func (p *Policy) For(i *request.Info, user *request.User) audit.Settings {
	s := p.find(i, user)
	if i.ShowsOthers() {
		s.Level = min(s.Level, audit.Metadata)
	}
	return s
}

// find returns the settings of the first rule that matches.
func (p *Policy) find(i *request.Info, user *request.User) audit.Settings {
	for k := range p.rules {
		if p.rules[k].matches(i, user) {
			return p.rules[k].settings
		}
	}
	return p.fallback
}

// matches reports whether the rule matches a request: the request has to match each list of
// the rule that is not empty.
func (r *rule) matches(i *request.Info, user *request.User) bool {
	if len(r.Users) > 0 && (user == nil || !slices.Contains(r.Users, user.Name)) {
		return false
	}
	if len(r.UserGroups) > 0 &&
		(user == nil || !slices.ContainsFunc(user.Groups, func(g string) bool { return slices.Contains(r.UserGroups, g) })) {
		return false
	}
	if len(r.Verbs) > 0 && !slices.Contains(r.Verbs, i.Verb) {
		return false
	}
	switch {
	case len(r.Namespaces) > 0 || len(r.Resources) > 0:
		return i.IsResource() && r.hasNamespace(i) && r.hasResource(i)
	case len(r.NonResourceURLs) > 0:
		return !i.IsResource() &&
			slices.ContainsFunc(r.NonResourceURLs, func(spec string) bool { return pathMatches(spec, i.Path) })
	}
	return true
}

func (r *rule) hasNamespace(i *request.Info) bool {
	return len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, i.Namespace)
}

func (r *rule) hasResource(i *request.Info) bool {
	if len(r.Resources) == 0 {
		return true
	}
	return slices.ContainsFunc(r.Resources, func(g auditv1.GroupResources) bool {
		if g.Group != i.Group && g.Group != "*" {
			return false
		}
		if len(g.Resources) == 0 {
			return true
		}
		if len(g.ResourceNames) > 0 && !slices.Contains(g.ResourceNames, i.Name) {
			return false
		}
		return slices.ContainsFunc(g.Resources,
			func(spec string) bool { return resourceMatches(spec, i.Resource, i.Subresource) })
	})
}

// resourceMatches reports whether spec, a resource in a rule, matches a request. spec can be "*", "pods",
// "pods/log", "pods/*" (which also matches pods) or "*/scale". A spec without a subresource also matches hidden
// subresources that show the object, so that a rule for secrets that was written for Kubernetes also keeps these
// responses out of the log.
func resourceMatches(spec, resource, subresource string) bool {
	if spec == "*" {
		return true
	}
	name, sub, hasSub := strings.Cut(spec, "/")
	switch {
	case !hasSub:
		hidden := request.FindHidden(subresource)
		return name == resource && (subresource == "" || hidden != nil && hidden.ShowsObject)
	case sub == "*" && name == resource:
		return true
	case name == "*" && subresource != "":
		return sub == subresource
	}
	return name == resource && sub == subresource
}

// pathMatches reports whether a path in a rule, which may end with "*", matches.
func pathMatches(spec, path string) bool {
	if prefix, ok := strings.CutSuffix(spec, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return spec == path
}
