package rbac

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

const (
	kindRole        = "Role"
	kindClusterRole = "ClusterRole"

	accountPrefix = "system:serviceaccount:"

	// indexedFrom is the number of grants of a subject above which they are indexed by
	// resource. A search through fewer grants is as fast without an index.
	indexedFrom = 16

	// nameSeparator separates resource and object name in the keys of that index. No resource
	// contains it.
	nameSeparator = "\x00"
)

// Index answers authorization questions from Roles, ClusterRoles and their bindings. It is
// updated object by object. A decision looks only at the bindings of the user:
//
//	subject (user or group, in one namespace or in all)
//	  -> its grants: binding and role
//	       -> the role's rules
//
// An Index may be used concurrently.
type Index struct {
	mu       sync.RWMutex // guards the following fields and everything that they point to
	roles    map[roleKey]*role
	bindings map[objectKey]*binding
	subjects map[subject]*subjectGrants
}

// NewIndex returns an Index without objects, which allows nothing.
func NewIndex() *Index {
	return &Index{roles: map[roleKey]*role{}, bindings: map[objectKey]*binding{}, subjects: map[subject]*subjectGrants{}}
}

// objectKey identifies a binding. ClusterRoleBindings have no namespace.
type objectKey struct{ namespace, name string }

// roleKey identifies a role. ClusterRoles have no namespace. The kind is part of the key
// because a ClusterRoleBinding can refer to a Role, which then never exists.
type roleKey struct{ kind, namespace, name string }

// subject is a user or a group in one namespace or, if namespace is empty, in all namespaces.
// Service accounts are subjects by their user names.
type subject struct {
	namespace string
	group     bool
	name      string
}

// role is a Role or a ClusterRole. It has exists=false if only bindings refer to it.
type role struct {
	roleKey
	exists bool
	rules  []rule
	// grants are the grants of all bindings that refer to the role.
	grants []*grant
}

// binding is a RoleBinding or ClusterRoleBinding.
type binding struct {
	objectKey
	ref      rbacv1.RoleRef
	subjects []rbacv1.Subject
	// keys are the subjects as keys of the index. A subject that is not valid has the zero
	// value.
	keys   []subject
	role   *role
	grants []*grant
	// reasons are the reasons of an Allow, one for each subject, made when first needed.
	reasons []atomic.Pointer[string]
}

// grant is the role that a binding gives to one of its subjects.
type grant struct {
	binding *binding
	role    *role
	holder  *subjectGrants
	// position is the index of the subject in the binding's subjects.
	position int
}

// subjectGrants are the grants of a subject that at least one binding names.
type subjectGrants struct {
	key    subject
	grants []*grant
	// byTarget indexes the grants by the resources of their roles. A key is "resource" or
	// "resource/subresource", followed by nameSeparator and the object's name if the rule
	// has names. It is nil if there are few grants. wildcard has the grants that are not in
	// byTarget: see role.hasWildcard.
	byTarget map[string][]*grant
	wildcard []*grant
}

// SetRole sets the rules of a Role, or of a ClusterRole if namespace is "".
func (ind *Index) SetRole(namespace, name string, rules []rbacv1.PolicyRule) {
	ind.changeRole(namespace, name, true, compile(rules))
}

// DeleteRole removes a Role, or a ClusterRole if namespace is "".
func (ind *Index) DeleteRole(namespace, name string) { ind.changeRole(namespace, name, false, nil) }

func (ind *Index) changeRole(namespace, name string, exists bool, rules []rule) {
	ind.mu.Lock()
	defer ind.mu.Unlock()
	r := ind.role(keyOfRole(namespace, name))
	for _, g := range r.grants {
		g.holder.unindex(g)
	}
	r.exists, r.rules = exists, rules
	for _, g := range r.grants {
		g.holder.index(g)
	}
	ind.dropUnused(r)
}

func keyOfRole(namespace, name string) roleKey {
	if namespace == "" {
		return roleKey{kindClusterRole, "", name}
	}
	return roleKey{kindRole, namespace, name}
}

func (ind *Index) role(key roleKey) *role {
	r := ind.roles[key]
	if r == nil {
		r = &role{roleKey: key}
		ind.roles[key] = r
	}
	return r
}

// dropUnused removes a role that does not exist and that no binding refers to.
func (ind *Index) dropUnused(r *role) {
	if !r.exists && len(r.grants) == 0 && ind.roles[r.roleKey] == r {
		delete(ind.roles, r.roleKey)
	}
}

// SetBinding adds or replaces a RoleBinding, or a ClusterRoleBinding if namespace is "".
func (ind *Index) SetBinding(namespace, name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
	ind.mu.Lock()
	defer ind.mu.Unlock()
	key := objectKey{namespace, name}
	ind.removeBinding(key)
	b := &binding{
		objectKey: key, ref: ref, subjects: subjects,
		keys: make([]subject, len(subjects)), reasons: make([]atomic.Pointer[string], len(subjects)),
	}
	target := roleKey{ref.Kind, "", ref.Name}
	if ref.Kind == kindRole {
		target.namespace = namespace
	}
	b.role = ind.role(target)
	ind.bindings[key] = b
	for i := range subjects {
		s, ok := subjectOf(&subjects[i], namespace)
		if !ok {
			continue
		}
		b.keys[i] = s
		h := ind.subjects[s]
		if h == nil {
			h = &subjectGrants{key: s}
			ind.subjects[s] = h
		}
		if n := len(h.grants); n > 0 && h.grants[n-1].binding == b {
			continue // the binding names the subject twice
		}
		g := &grant{binding: b, role: b.role, holder: h, position: i}
		b.grants = append(b.grants, g)
		b.role.grants = append(b.role.grants, g)
		h.add(g)
	}
	ind.dropUnused(b.role)
}

// DeleteBinding removes a RoleBinding, or a ClusterRoleBinding if namespace is "".
func (ind *Index) DeleteBinding(namespace, name string) {
	ind.mu.Lock()
	defer ind.mu.Unlock()
	ind.removeBinding(objectKey{namespace, name})
}

func (ind *Index) removeBinding(key objectKey) {
	b := ind.bindings[key]
	if b == nil {
		return
	}
	delete(ind.bindings, key)
	for _, g := range b.grants {
		g.holder.remove(g)
		if len(g.holder.grants) == 0 {
			delete(ind.subjects, g.holder.key)
		}
		b.role.grants = without(b.role.grants, g)
	}
	ind.dropUnused(b.role)
}

// retainRoles removes the ClusterRoles, or the Roles if cluster is false, for which keep
// returns false.
func (ind *Index) retainRoles(cluster bool, keep func(namespace, name string) bool) {
	ind.mu.RLock()
	var gone []roleKey
	for key, r := range ind.roles {
		if r.exists && (key.namespace == "") == cluster && !keep(key.namespace, key.name) {
			gone = append(gone, key)
		}
	}
	ind.mu.RUnlock()
	for _, key := range gone {
		ind.DeleteRole(key.namespace, key.name)
	}
}

// retainBindings removes the ClusterRoleBindings, or the RoleBindings if cluster is false, for
// which keep returns false.
func (ind *Index) retainBindings(cluster bool, keep func(namespace, name string) bool) {
	ind.mu.RLock()
	var gone []objectKey
	for key := range ind.bindings {
		if (key.namespace == "") == cluster && !keep(key.namespace, key.name) {
			gone = append(gone, key)
		}
	}
	ind.mu.RUnlock()
	for _, key := range gone {
		ind.DeleteBinding(key.namespace, key.name)
	}
}

// subjectOf returns the key of a binding's subject. It returns false for a subject that is not
// valid.
func subjectOf(s *rbacv1.Subject, bindingNamespace string) (subject, bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return subject{bindingNamespace, false, s.Name}, true
	case rbacv1.GroupKind:
		return subject{bindingNamespace, true, s.Name}, true
	case rbacv1.ServiceAccountKind:
		namespace := cmp.Or(s.Namespace, bindingNamespace)
		if namespace == "" {
			return subject{}, false
		}
		return subject{bindingNamespace, false, accountPrefix + namespace + ":" + s.Name}, true
	}
	return subject{}, false
}

// without removes an element from list. It may change the order.
func without(list []*grant, g *grant) []*grant {
	i := slices.Index(list, g)
	if i < 0 {
		return list
	}
	last := len(list) - 1
	list[i] = list[last]
	list[last] = nil
	return list[:last]
}

func (s *subjectGrants) add(g *grant) {
	s.grants = append(s.grants, g)
	if s.byTarget == nil && len(s.grants) > indexedFrom {
		s.byTarget = map[string][]*grant{}
		for _, g := range s.grants {
			s.index(g)
		}
		return
	}
	s.index(g)
}

func (s *subjectGrants) remove(g *grant) {
	s.unindex(g)
	s.grants = without(s.grants, g)
	if len(s.grants) <= indexedFrom/2 {
		s.byTarget, s.wildcard = nil, nil
	}
}

// index adds a grant to byTarget or wildcard.
func (s *subjectGrants) index(g *grant) {
	if s.byTarget == nil {
		return
	}
	if g.role.hasWildcard() {
		s.wildcard = append(s.wildcard, g)
		return
	}
	g.role.eachTarget(func(name string) {
		if list := s.byTarget[name]; len(list) == 0 || list[len(list)-1] != g {
			s.byTarget[name] = append(list, g)
		}
	})
}

// unindex removes a grant from byTarget or wildcard. The role must not have changed since
// index.
func (s *subjectGrants) unindex(g *grant) {
	if s.byTarget == nil {
		return
	}
	if g.role.hasWildcard() {
		s.wildcard = without(s.wildcard, g)
		return
	}
	g.role.eachTarget(func(name string) {
		if list := without(s.byTarget[name], g); len(list) > 0 {
			s.byTarget[name] = list
		} else {
			delete(s.byTarget, name)
		}
	})
}

// hasWildcard reports whether the grants of the role cannot be found by the names of its
// resources: it has wildcards or non-resource URLs, or it does not exist, which has to be
// reported.
func (r *role) hasWildcard() bool {
	if !r.exists {
		return true
	}
	for i := range r.rules {
		rule := &r.rules[i]
		if rule.anyResource || len(rule.NonResourceURLs) > 0 {
			return true
		}
		for _, name := range rule.Resources {
			if len(name) > 1 && name[:2] == "*/" {
				return true
			}
		}
	}
	return false
}

// eachTarget calls visit with each key of the role in byTarget.
func (r *role) eachTarget(visit func(key string)) {
	for i := range r.rules {
		rule := &r.rules[i]
		for _, resource := range rule.Resources {
			if len(rule.ResourceNames) == 0 {
				visit(resource)
			}
			for _, name := range rule.ResourceNames {
				visit(resource + nameSeparator + name)
			}
		}
	}
}

// notFound returns the error for a binding whose role does not exist.
func (b *binding) notFound() error {
	return b.notFoundAs(rbacv1.Resource(strings.ToLower(b.ref.Kind)))
}

// notFoundAs returns the same error with another resource in its text.
func (b *binding) notFoundAs(resource schema.GroupResource) error {
	if b.ref.Kind != kindRole && b.ref.Kind != kindClusterRole {
		return fmt.Errorf("unsupported role reference kind: %q", b.ref.Kind)
	}
	return kerrors.NewNotFound(resource, b.ref.Name)
}

// maxSubjectsSearched limits the search of reason for the first subject of a binding that
// matches.
const maxSubjectsSearched = 64

// reason returns the reason of an Allow. It names the first subject of the binding that
// matches the user or, if that is not among the first maxSubjectsSearched, the subject of the
// grant.
func (g *grant) reason(u *request.User) string {
	b, at := g.binding, g.position
	for i := range b.keys[:min(at, maxSubjectsSearched)] {
		if b.keys[i].is(u) {
			at = i
			break
		}
	}
	if known := b.reasons[at].Load(); known != nil {
		return *known
	}
	text := "RBAC: allowed by " + b.describe(&b.subjects[at])
	b.reasons[at].Store(&text)
	return text
}

func (s subject) is(u *request.User) bool {
	switch {
	case s.name == "":
		return false
	case s.group:
		return u.InGroup(s.name)
	}
	return u.Name == s.name
}

func (b *binding) describe(s *rbacv1.Subject) string {
	kind, name := "ClusterRoleBinding", b.name
	if b.namespace != "" {
		kind, name = "RoleBinding", b.name+"/"+b.namespace
	}
	who := s.Name
	if s.Kind == rbacv1.ServiceAccountKind {
		who += "/" + cmp.Or(s.Namespace, b.namespace)
	}
	return fmt.Sprintf("%s %q of %s %q to %s %q", kind, name, b.ref.Kind, b.ref.Name, s.Kind, who)
}
