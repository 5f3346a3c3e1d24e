package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Decide reports whether the user may make the request. The reason names the binding that
// allows it, or the roles that could not be found.
func (ind *Index) Decide(u *request.User, i *request.Info) (allowed bool, reason string) {
	ind.mu.RLock()
	defer ind.mu.RUnlock()
	if g := ind.find(u, i, ""); g != nil {
		return true, g.reason(u)
	}
	if i.Namespace != "" {
		if g := ind.find(u, i, i.Namespace); g != nil {
			return true, g.reason(u)
		}
	}
	if err := ind.missing(u, i.Namespace); err != nil {
		return false, "RBAC: " + err.Error()
	}
	return false, ""
}

// find returns a grant that allows the request, in one namespace, or in all namespaces if
// namespace is "".
func (ind *Index) find(u *request.User, i *request.Info, namespace string) *grant {
	if g := ind.subjects[subject{namespace, false, u.Name}].find(i); g != nil {
		return g
	}
	for _, group := range u.Groups {
		if g := ind.subjects[subject{namespace, true, group}].find(i); g != nil {
			return g
		}
	}
	return nil
}

func (s *subjectGrants) find(i *request.Info) *grant {
	switch {
	case s == nil:
		return nil
	case s.byTarget == nil:
		return findIn(s.grants, i)
	}
	if i.IsResource() {
		var buffer [160]byte // the buffer is on the stack; only very long names allocate
		key := append(buffer[:0], i.Resource...)
		if i.Subresource != "" {
			key = append(append(key, '/'), i.Subresource...)
		}
		if g := findIn(s.byTarget[string(key)], i); g != nil {
			return g
		}
		key = append(append(key, nameSeparator...), i.Name...)
		if g := findIn(s.byTarget[string(key)], i); g != nil {
			return g
		}
	}
	return findIn(s.wildcard, i)
}

func findIn(grants []*grant, i *request.Info) *grant {
	for _, g := range grants {
		for n := range g.role.rules {
			if g.role.rules[n].allows(i) {
				return g
			}
		}
	}
	return nil
}

// missing returns an error that names the roles of the user's bindings that do not exist, nil
// if all exist.
func (ind *Index) missing(u *request.User, namespace string) error {
	var missing []*binding
	ind.eachGrant(u, namespace, true, func(g *grant) {
		if !g.role.exists {
			missing = append(missing, g.binding)
		}
	})
	return joinErrors(missing, (*binding).notFound)
}

// eachGrant calls visit for the grants of a user, the cluster-wide ones first. If wildcardOnly is true, it leaves
// out the grants that are in byTarget. Their roles exist and have no wildcards.
func (ind *Index) eachGrant(u *request.User, namespace string, wildcardOnly bool, visit func(*grant)) {
	scope := func(namespace string) {
		visitGrants := func(h *subjectGrants) {
			if h == nil {
				return
			}
			grants := h.grants
			if wildcardOnly && h.byTarget != nil {
				grants = h.wildcard
			}
			for _, g := range grants {
				visit(g)
			}
		}
		visitGrants(ind.subjects[subject{namespace, false, u.Name}])
		for _, group := range u.Groups {
			visitGrants(ind.subjects[subject{namespace, true, group}])
		}
	}
	scope("")
	if namespace != "" {
		scope(namespace)
	}
}

// Rules returns all rules that apply to a user in a namespace, and an error that names the
// roles that could not be found.
func (ind *Index) Rules(u *request.User, namespace string) ([]rbacv1.PolicyRule, error) {
	rules, missing := ind.rulesOf(u, namespace)
	return rules, joinErrors(missing, (*binding).notFound)
}

// rulesOf returns all rules of a user, and the bindings whose role does not exist.
func (ind *Index) rulesOf(u *request.User, namespace string) (rules []rbacv1.PolicyRule, missing []*binding) {
	ind.mu.RLock()
	defer ind.mu.RUnlock()
	seen := map[*binding]bool{}
	ind.eachGrant(u, namespace, false, func(g *grant) {
		if seen[g.binding] {
			return
		}
		seen[g.binding] = true
		if !g.role.exists {
			missing = append(missing, g.binding)
		}
		for i := range g.role.rules {
			rules = append(rules, *g.role.rules[i].PolicyRule)
		}
	})
	return rules, missing
}

// joinErrors returns the errors of all bindings as one error, nil if there are no bindings.
func joinErrors(bindings []*binding, word func(*binding) error) error {
	errs := make([]error, len(bindings))
	for i, b := range bindings {
		errs[i] = word(b)
	}
	return utilerrors.NewAggregate(errs)
}

// RoleRules returns the rules of the role that a binding in the namespace refers to.
func (ind *Index) RoleRules(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	b := binding{ref: ref}
	key := roleKey{ref.Kind, "", ref.Name}
	if ref.Kind == kindRole {
		key.namespace = namespace
	}
	ind.mu.RLock()
	defer ind.mu.RUnlock()
	r := ind.roles[key]
	if r == nil || !r.exists {
		return nil, b.notFound()
	}
	rules := make([]rbacv1.PolicyRule, len(r.rules))
	for i := range r.rules {
		rules[i] = *r.rules[i].PolicyRule
	}
	return rules, nil
}
