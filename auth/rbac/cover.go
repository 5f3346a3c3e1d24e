package rbac

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/request"
)

// ConfirmHeld returns nil if a user has all that rules allow in a namespace, and
// else an *EscalationError that lists what the user lacks. Of roles that are not
// there it says that the request's resource was not found, as kube-apiserver does.
func (x *Index) ConfirmHeld(u *request.User, namespace string, resource schema.GroupResource, rules []rbacv1.PolicyRule) error {
	held, missing := x.rulesOf(u, namespace)
	lacking := Uncovered(held, rules)
	if len(lacking) == 0 {
		return nil
	}
	lines := make([]string, 0, len(lacking))
	for _, r := range compact(lacking) {
		lines = append(lines, describeRule(&r))
	}
	sort.Strings(lines)
	message := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		u.Name, u.Groups, strings.Join(slices.Compact(lines), "\n"))
	if err := joined(missing, func(b *binding) error { return b.notFoundAs(resource) }); err != nil {
		message += fmt.Sprintf("; resolution errors: [%v]", err)
	}
	return &EscalationError{message}
}

// Uncovered returns what wanted allows beyond held, in rules of one group,
// resource, verb and name each.
func Uncovered(held, wanted []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	owned := compile(held)
	var out []rbacv1.PolicyRule
	for i := range wanted {
		eachAtom(&wanted[i], func(atom rbacv1.PolicyRule) {
			for n := range owned {
				if owned[n].covers(&atom) {
					return
				}
			}
			out = append(out, atom)
		})
	}
	return out
}

// eachAtom takes a rule apart: what is left is covered by one rule or not at all.
func eachAtom(r *rbacv1.PolicyRule, visit func(rbacv1.PolicyRule)) {
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				atom := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
				if len(r.ResourceNames) == 0 {
					visit(atom)
				}
				for _, name := range r.ResourceNames {
					atom.ResourceNames = []string{name}
					visit(atom)
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

// covers says whether the rule allows all that an atom does. A wildcard of the
// atom is covered by a wildcard alone.
func (r *rule) covers(atom *rbacv1.PolicyRule) bool {
	if !r.anyVerb && !has(r.Verbs, atom.Verbs[0]) {
		return false
	}
	if len(atom.NonResourceURLs) > 0 {
		return coversURL(r.NonResourceURLs, atom.NonResourceURLs[0])
	}
	if !r.anyGroup && !has(r.APIGroups, atom.APIGroups[0]) {
		return false
	}
	if !r.anyResource && !r.coversResource(atom.Resources[0]) {
		return false
	}
	if len(r.ResourceNames) == 0 {
		return true
	}
	return len(atom.ResourceNames) > 0 && has(r.ResourceNames, atom.ResourceNames[0])
}

func (r *rule) coversResource(name string) bool {
	if has(r.Resources, name) {
		return true
	}
	_, subresource, ok := strings.Cut(name, "/")
	return ok && has(r.Resources, "*/"+subresource)
}

// compact joins atoms that differ by their verb alone.
func compact(atoms []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	type target struct {
		group, resource, name string
		named                 bool
	}
	var out []rbacv1.PolicyRule
	at := map[target]int{}
	for _, atom := range atoms {
		if len(atom.NonResourceURLs) > 0 {
			out = append(out, atom)
			continue
		}
		t := target{group: atom.APIGroups[0], resource: atom.Resources[0]}
		if len(atom.ResourceNames) > 0 {
			t.name, t.named = atom.ResourceNames[0], true
		}
		i, ok := at[t]
		if !ok {
			at[t] = len(out)
			out = append(out, atom)
			continue
		}
		out[i].Verbs = append(out[i].Verbs, atom.Verbs...)
	}
	return out
}

// describeRule writes a rule as kube-apiserver's messages do.
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

// EscalationError says that a user is about to grant what it does not have.
type EscalationError struct{ message string }

func (e *EscalationError) Error() string { return e.message }
