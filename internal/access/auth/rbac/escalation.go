package rbac

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// ConfirmNoEscalation returns nil if the user has all permissions of the rules in the namespace. Otherwise it returns
// an error that lists the missing permissions. If roles of the user's bindings do not exist, the message
// says that the given resource was not found, as kube-apiserver's does.
//
// A rule allows all combinations of its groups, resources, verbs and names, so a request of a few kilobytes may contain
// millions of permissions. At most maxPermissions are checked one by one. Further rules must each be contained in a
// single rule of the user. (kube-apiserver has no limit.)
func (ind *Index) ConfirmNoEscalation(
	u *request.User, namespace string, resource schema.GroupResource, rules []rbacv1.PolicyRule,
) error {
	held, missing := ind.rulesOf(u, namespace)
	rules, large := splitOffLarge(held, rules)
	uncovered := Uncovered(held, rules)
	if len(uncovered) == 0 && len(large) == 0 {
		return nil
	}
	lines := make([]string, 0, len(uncovered))
	for _, r := range compactRules(uncovered) {
		lines = append(lines, describeRule(&r))
	}
	sort.Strings(lines)
	for _, r := range large {
		lines = append(lines, fmt.Sprintf("a rule of %d groups, %d resources, %d names, %d URLs and %d verbs, which is too large to "+
			"look at each permission and is not contained in one rule of the user",
			len(r.APIGroups), len(r.Resources), len(r.ResourceNames), len(r.NonResourceURLs), len(r.Verbs)))
	}
	message := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		u.Name, u.Groups, strings.Join(slices.Compact(lines), "\n"))
	if err := joinErrors(missing, func(b *binding) error { return b.notFoundAs(resource) }); err != nil {
		message += fmt.Sprintf("; resolution errors: [%v]", err)
	}
	return errors.New(message)
}

// maxPermissions limits the permissions that are checked one by one. Checking one takes up to some microseconds.
const maxPermissions = 20_000

// splitOffLarge splits rules. Those in small have at most maxPermissions permissions together. large has the
// others, except those that one rule of held contains.
func splitOffLarge(held, rules []rbacv1.PolicyRule) (small, large []rbacv1.PolicyRule) {
	var owned []rule
	left := maxPermissions
	for i := range rules {
		r := &rules[i]
		if n, ok := permissions(r, left); ok {
			left -= n
			small = append(small, *r)
			continue
		}
		if owned == nil {
			owned = compile(held)
		}
		if !slices.ContainsFunc(owned, func(o rule) bool { return o.contains(r) }) {
			large = append(large, *r)
		}
	}
	return small, large
}

// permissions returns the number of permissions of a rule. It returns false if they are more than most.
func permissions(r *rbacv1.PolicyRule, most int) (int, bool) {
	n := len(r.APIGroups)
	for _, factor := range []int{len(r.Resources), len(r.Verbs), max(1, len(r.ResourceNames))} {
		if n *= factor; n > most {
			return 0, false
		}
	}
	n += len(r.NonResourceURLs) * len(r.Verbs)
	return n, n <= most
}

// contains reports whether r by itself allows all that another rule allows.
func (r *rule) contains(other *rbacv1.PolicyRule) bool {
	verbs := setOf(r.Verbs)
	if !r.anyVerb && !verbs.hasAll(other.Verbs) {
		return false
	}
	for _, url := range other.NonResourceURLs {
		if !coversURL(r.NonResourceURLs, url) {
			return false
		}
	}
	if len(other.APIGroups) == 0 || len(other.Resources) == 0 {
		return true // it allows URLs only
	}
	if !r.anyGroup && !setOf(r.APIGroups).hasAll(other.APIGroups) {
		return false
	}
	resources := setOf(r.Resources)
	for _, name := range other.Resources {
		_, subresource, ok := strings.Cut(name, "/")
		if !r.anyResource && !resources[name] && !(ok && resources["*/"+subresource]) {
			return false
		}
	}
	return len(r.ResourceNames) == 0 || len(other.ResourceNames) > 0 && setOf(r.ResourceNames).hasAll(other.ResourceNames)
}

// set is a list whose members are found in constant time.
type set map[string]bool

func setOf(list []string) set {
	s := make(set, len(list))
	for _, e := range list {
		s[e] = true
	}
	return s
}

func (s set) hasAll(list []string) bool {
	return !slices.ContainsFunc(list, func(e string) bool { return !s[e] })
}

// Uncovered returns the permissions of wanted that held does not contain. Each returned rule
// has one group, resource, verb and at most one name, or one URL and verb.
func Uncovered(held, wanted []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	owned := compile(held)
	var out []rbacv1.PolicyRule
	for i := range wanted {
		eachSimpleRule(&wanted[i], func(simple rbacv1.PolicyRule) {
			for n := range owned {
				if owned[n].covers(&simple) {
					return
				}
			}
			out = append(out, simple)
		})
	}
	return out
}

// eachSimpleRule splits a rule into rules with one group, resource, verb and name each, or one
// URL and verb each. Such a rule is either covered by one other rule or not covered at all.
func eachSimpleRule(r *rbacv1.PolicyRule, visit func(rbacv1.PolicyRule)) {
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				simple := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
				if len(r.ResourceNames) == 0 {
					visit(simple)
				}
				for _, name := range r.ResourceNames {
					simple.ResourceNames = []string{name}
					visit(simple)
				}
			}
		}
	}
	for _, url := range r.NonResourceURLs {
		for _, verb := range r.Verbs {
			visit(rbacv1.PolicyRule{NonResourceURLs: []string{url}, Verbs: []string{verb}})
		}
	}
}

// covers reports whether r allows all that a simple rule allows. A wildcard in the simple rule
// is only covered by a wildcard.
func (r *rule) covers(simple *rbacv1.PolicyRule) bool {
	if !r.anyVerb && !has(r.Verbs, simple.Verbs[0]) {
		return false
	}
	if len(simple.NonResourceURLs) > 0 {
		return coversURL(r.NonResourceURLs, simple.NonResourceURLs[0])
	}
	if !r.anyGroup && !has(r.APIGroups, simple.APIGroups[0]) {
		return false
	}
	if !r.anyResource && !r.coversResource(simple.Resources[0]) {
		return false
	}
	if len(r.ResourceNames) == 0 {
		return true
	}
	return len(simple.ResourceNames) > 0 && has(r.ResourceNames, simple.ResourceNames[0])
}

func (r *rule) coversResource(name string) bool {
	if has(r.Resources, name) {
		return true
	}
	_, subresource, ok := strings.Cut(name, "/")
	return ok && has(r.Resources, "*/"+subresource)
}

// compactRules joins simple rules that differ only in their verb.
func compactRules(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	type target struct {
		group, resource, name string
		named                 bool
	}
	var out []rbacv1.PolicyRule
	at := map[target]int{}
	for _, rule := range rules {
		if len(rule.NonResourceURLs) > 0 {
			out = append(out, rule)
			continue
		}
		t := target{group: rule.APIGroups[0], resource: rule.Resources[0]}
		if len(rule.ResourceNames) > 0 {
			t.name, t.named = rule.ResourceNames[0], true
		}
		i, ok := at[t]
		if !ok {
			at[t] = len(out)
			out = append(out, rule)
			continue
		}
		out[i].Verbs = append(out[i].Verbs, rule.Verbs...)
	}
	return out
}

// describeRule returns a rule as text, in the format of kube-apiserver's messages.
func describeRule(r *rbacv1.PolicyRule) string {
	var parts []string
	add := func(name string, list []string) {
		if len(list) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", name, list))
		}
	}
	add("APIGroups", r.APIGroups)
	add("Resources", r.Resources)
	add("NonResourceURLs", r.NonResourceURLs)
	add("ResourceNames", r.ResourceNames)
	add("Verbs", r.Verbs)
	return "{" + strings.Join(parts, ", ") + "}"
}
