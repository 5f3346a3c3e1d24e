// Package abac is the authorization mode ABAC: it reads a file of policies, one JSON document
// per line.
package abac

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

const (
	apiVersion = "abac.authorization.kubernetes.io/v1beta1"
	kind       = "Policy"
	wildcard   = "*"
)

// Spec is the spec of one policy, with the fields of v1beta1.
type Spec struct {
	User            string `json:"user,omitempty"`
	Group           string `json:"group,omitempty"`
	Readonly        bool   `json:"readonly,omitempty"`
	APIGroup        string `json:"apiGroup,omitempty"`
	Resource        string `json:"resource,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	NonResourcePath string `json:"nonResourcePath,omitempty"`
}

// Policies are the policies of a file, which Replace replaces as a whole. They implement authz.Authorizer.
type Policies struct{ current atomic.Pointer[[]Spec] }

// Replace replaces the policies by those in content. Empty lines and lines that begin with # are ignored. After an error the
// policies are unchanged. It is called once before the first request.
func (p *Policies) Replace(content []byte) error {
	var all []Spec
	for n, line := range bytes.Split(content, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		spec, err := parse(line)
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", n+1, line, err)
		}
		all = append(all, spec)
	}
	p.current.Store(&all)
	return nil
}

// parse reads a policy of version v1beta1, or one of the older format without a version.
func parse(line []byte) (Spec, error) {
	var policy struct {
		metav1.TypeMeta
		Spec Spec `json:"spec"`
	}
	if err := json.Unmarshal(line, &policy); err != nil {
		return Spec{}, err
	}
	if policy.APIVersion == "" && policy.Kind == "" {
		return parseUnversioned(line)
	}
	if policy.APIVersion != apiVersion || policy.Kind != kind {
		return Spec{},
			fmt.Errorf("expected %s of %s, got apiVersion %q, kind %q", kind, apiVersion, policy.APIVersion, policy.Kind)
	}
	return expandWildcard(policy.Spec), nil
}

// expandWildcard replaces "*" in user or group by the group system:authenticated.
func expandWildcard(s Spec) Spec {
	if s.User == wildcard || s.Group == wildcard {
		s.User, s.Group = "", request.GroupAuthenticated
	}
	return s
}

// parseUnversioned reads a policy of the older format, where a missing field matches
// everything.
func parseUnversioned(line []byte) (Spec, error) {
	var old struct {
		User      string `json:"user"`
		Group     string `json:"group"`
		Readonly  bool   `json:"readonly"`
		Resource  string `json:"resource"`
		Namespace string `json:"namespace"`
	}
	if err := json.Unmarshal(line, &old); err != nil {
		return Spec{}, err
	}
	s := Spec{User: old.User, Group: old.Group, Readonly: old.Readonly, APIGroup: wildcard, Resource: old.Resource,
		Namespace: old.Namespace}
	if s.User == "" && s.Group == "" {
		s.Group = request.GroupAuthenticated
	}
	if s.Namespace == "" && s.Resource == "" {
		s.NonResourcePath = wildcard
	}
	s.Namespace, s.Resource = cmp.Or(s.Namespace, wildcard), cmp.Or(s.Resource, wildcard)
	return expandWildcard(s), nil
}

// Authorize implements authz.Authorizer.
func (p *Policies) Authorize(_ context.Context, at authz.Attributes) (authz.Decision, string, error) {
	all := *p.current.Load()
	for i := range all {
		if all[i].allows(at) {
			return authz.Allow, "", nil
		}
	}
	return authz.NoOpinion, "No policy matched.", nil
}

// RulesFor implements authz.RuleResolver.
func (p *Policies) RulesFor(_ context.Context, u *request.User, namespace string) (authz.Rules, error) {
	var out authz.Rules
	all := *p.current.Load()
	for i := range all {
		s := &all[i]
		if !s.matchesSubject(u) || s.Namespace != wildcard && s.Namespace != namespace {
			continue
		}
		verbs := []string{wildcard}
		if s.Readonly {
			verbs = []string{"get", "list", "watch"}
		}
		if s.Resource != "" {
			out.Resource = append(out.Resource,
				authorizationv1.ResourceRule{Verbs: verbs, APIGroups: []string{s.APIGroup}, Resources: []string{s.Resource}})
		}
		if s.NonResourcePath != "" {
			out.NonResource = append(out.NonResource,
				authorizationv1.NonResourceRule{Verbs: verbs, NonResourceURLs: []string{s.NonResourcePath}})
		}
	}
	return out, nil
}

func (s *Spec) allows(at authz.Attributes) bool {
	i := at.Info
	if !s.matchesSubject(at.User) || s.Readonly && !isReadOnly(i.Verb) {
		return false
	}
	if i.IsResource() {
		return matches(s.Namespace, i.Namespace) && matches(s.Resource, i.Resource) && matches(s.APIGroup, i.Group)
	}
	prefix, wild := strings.CutSuffix(s.NonResourcePath, wildcard)
	return s.NonResourcePath == i.Path || wild && strings.HasPrefix(i.Path, strings.TrimRight(prefix, wildcard))
}

func matches(policy, value string) bool { return policy == wildcard || policy == value }

func isReadOnly(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// matchesSubject reports whether the policy applies to the user. A policy with a user and a group needs both to match;
// a policy with neither matches no user.
func (s *Spec) matchesSubject(u *request.User) bool {
	if s.User == "" && s.Group == "" {
		return false
	}
	return (s.User == "" || s.User == u.Name) && (s.Group == "" || u.InGroup(s.Group))
}
