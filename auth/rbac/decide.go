package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/keelson-dev/keelson/request"
)

// Decide says whether a user may do what a request asks for. The reason tells the
// binding that allows it, or the roles that could not be found.
func (x *Index) Decide(u *request.User, i *request.Info) (allowed bool, reason string) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if g := x.find(u, i, ""); g != nil {
		return true, g.reason(u)
	}
	if i.Namespace != "" {
		if g := x.find(u, i, i.Namespace); g != nil {
			return true, g.reason(u)
		}
	}
	if err := x.missing(u, i.Namespace); err != nil {
		return false, "RBAC: " + err.Error()
	}
	return false, ""
}

// find returns a grant of one scope that allows i.
func (x *Index) find(u *request.User, i *request.Info, namespace string) *grant {
	if g := x.holders[subject{namespace, false, u.Name}].find(i); g != nil {
		return g
	}
	for _, group := range u.Groups {
		if g := x.holders[subject{namespace, true, group}].find(i); g != nil {
			return g
		}
	}
	return nil
}

func (h *holder) find(i *request.Info) *grant {
	switch {
	case h == nil:
		return nil
	case h.byTarget == nil:
		return findIn(h.grants, i)
	}
	if i.IsResource() {
		var buffer [160]byte // on the stack for all but the longest names
		key := append(buffer[:0], i.Resource...)
		if i.Subresource != "" {
			key = append(append(key, '/'), i.Subresource...)
		}
		if g := findIn(h.byTarget[string(key)], i); g != nil {
			return g
		}
		key = append(append(key, nameSeparator...), i.Name...)
		if g := findIn(h.byTarget[string(key)], i); g != nil {
			return g
		}
	}
	return findIn(h.broad, i)
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

// missing returns the errors of the user's bindings whose role is not there.
func (x *Index) missing(u *request.User, namespace string) error {
	var missing []*binding
	x.eachGrant(u, namespace, true, func(g *grant) {
		if !g.role.exists {
			missing = append(missing, g.binding)
		}
	})
	return joined(missing, (*binding).notFound)
}

// eachGrant visits the grants of a user, those of the cluster first. Of large
// holders only those of broad roles are visited where broad says so.
func (x *Index) eachGrant(u *request.User, namespace string, broad bool, visit func(*grant)) {
	scope := func(namespace string) {
		holder := func(h *holder) {
			if h == nil {
				return
			}
			grants := h.grants
			if broad && h.byTarget != nil {
				grants = h.broad
			}
			for _, g := range grants {
				visit(g)
			}
		}
		holder(x.holders[subject{namespace, false, u.Name}])
		for _, group := range u.Groups {
			holder(x.holders[subject{namespace, true, group}])
		}
	}
	scope("")
	if namespace != "" {
		scope(namespace)
	}
}

// Rules returns all rules that apply to a user in a namespace, with an error that
// names the roles that could not be found.
func (x *Index) Rules(u *request.User, namespace string) ([]rbacv1.PolicyRule, error) {
	rules, missing := x.rulesOf(u, namespace)
	return rules, joined(missing, (*binding).notFound)
}

// rulesOf returns all rules of a user, and the bindings whose role is not there.
func (x *Index) rulesOf(u *request.User, namespace string) (rules []rbacv1.PolicyRule, missing []*binding) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	seen := map[*binding]bool{}
	x.eachGrant(u, namespace, false, func(g *grant) {
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

// joined words the errors of bindings as one, nil of none.
func joined(bindings []*binding, word func(*binding) error) error {
	if len(bindings) == 0 {
		return nil
	}
	errs := make([]error, len(bindings))
	for i, b := range bindings {
		errs[i] = word(b)
	}
	return utilerrors.NewAggregate(errs)
}

// RoleRules returns the rules of the role that a binding in namespace refers to.
func (x *Index) RoleRules(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	b := binding{ref: ref}
	key := roleKey{ref.Kind, "", ref.Name}
	if ref.Kind == kindRole {
		key.namespace = namespace
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	r := x.roles[key]
	if r == nil || !r.exists {
		return nil, b.notFound()
	}
	rules := make([]rbacv1.PolicyRule, len(r.rules))
	for i := range r.rules {
		rules[i] = *r.rules[i].PolicyRule
	}
	return rules, nil
}
