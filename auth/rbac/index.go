package rbac

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/request"
)

const (
	kindRole        = "Role"
	kindClusterRole = "ClusterRole"

	accountPrefix = "system:serviceaccount:"

	// largeHolder is the number of grants from which a holder's are indexed by
	// resource: few are as quickly looked at one by one.
	largeHolder = 16

	// nameSeparator stands between resource and name in a holder's index; no
	// resource has it.
	nameSeparator = "\x00"
)

// Index answers who may do what from the four kinds of RBAC objects. It is
// changed object by object; a decision looks at the bindings of the user alone.
//
//	subject (user or group, in a namespace or everywhere)
//	  -> its grants: binding and role
//	       -> the role's rules
//
// It is used concurrently.
type Index struct {
	mu       sync.RWMutex // guards all that follows, and what it leads to
	roles    map[roleKey]*role
	bindings map[objectKey]*binding
	holders  map[subject]*holder
}

// NewIndex returns an Index without objects: it allows nothing.
func NewIndex() *Index {
	return &Index{roles: map[roleKey]*role{}, bindings: map[objectKey]*binding{}, holders: map[subject]*holder{}}
}

// objectKey names a binding; ClusterRoleBindings have no namespace.
type objectKey struct{ namespace, name string }

// roleKey names a role; ClusterRoles have no namespace. The kind counts too: a
// reference to a Role at the cluster scope is to nothing.
type roleKey struct{ kind, namespace, name string }

// subject is somebody in a scope: a user or group, in a namespace or, where that
// is empty, everywhere. Service accounts are the users that they sign in as.
type subject struct {
	namespace string
	group     bool
	name      string
}

// role is a Role or ClusterRole, or the reference to one that is not there.
type role struct {
	roleKey
	exists bool
	rules  []rule
	// grants are those of all bindings that refer to the role.
	grants []*grant
}

// binding is a RoleBinding or ClusterRoleBinding.
type binding struct {
	objectKey
	ref      rbacv1.RoleRef
	subjects []rbacv1.Subject
	// who are the subjects in the binding's scope; nobody is the zero value.
	who    []subject
	role   *role
	grants []*grant
	// reasons are the words of an Allow by subject, made when first needed.
	reasons []atomic.Pointer[string]
}

// grant gives a subject of a binding its role.
type grant struct {
	binding *binding
	role    *role
	holder  *holder
	// position is that of the holder among the binding's subjects.
	position int
}

// holder is a subject that is named by at least one binding.
type holder struct {
	key    subject
	grants []*grant
	// byTarget is nil for holders of few grants. Below "resource" or
	// "resource/subresource", and an object's name where the rule has one, are
	// the grants whose role names it; those with a wildcard, or non-resource
	// URLs, are in broad.
	byTarget map[string][]*grant
	broad    []*grant
}

// SetRole makes rules those of a Role, or of a ClusterRole for an empty
// namespace.
func (x *Index) SetRole(namespace, name string, rules []rbacv1.PolicyRule) {
	x.changeRole(namespace, name, true, compile(rules))
}

// DeleteRole forgets a Role, or a ClusterRole for an empty namespace.
func (x *Index) DeleteRole(namespace, name string) { x.changeRole(namespace, name, false, nil) }

func (x *Index) changeRole(namespace, name string, exists bool, rules []rule) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.role(keyOfRole(namespace, name))
	for _, g := range r.grants {
		g.holder.unindex(g)
	}
	r.exists, r.rules = exists, rules
	for _, g := range r.grants {
		g.holder.index(g)
	}
	x.dropUnused(r)
}

func keyOfRole(namespace, name string) roleKey {
	if namespace == "" {
		return roleKey{kindClusterRole, "", name}
	}
	return roleKey{kindRole, namespace, name}
}

func (x *Index) role(key roleKey) *role {
	r := x.roles[key]
	if r == nil {
		r = &role{roleKey: key}
		x.roles[key] = r
	}
	return r
}

// dropUnused forgets a role that neither is there nor is referred to.
func (x *Index) dropUnused(r *role) {
	if !r.exists && len(r.grants) == 0 && x.roles[r.roleKey] == r {
		delete(x.roles, r.roleKey)
	}
}

// SetBinding puts a RoleBinding, or a ClusterRoleBinding for an empty namespace,
// in place of the one of its name.
func (x *Index) SetBinding(namespace, name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := objectKey{namespace, name}
	x.removeBinding(key)
	b := &binding{
		objectKey: key, ref: ref, subjects: subjects,
		who: make([]subject, len(subjects)), reasons: make([]atomic.Pointer[string], len(subjects)),
	}
	target := roleKey{ref.Kind, "", ref.Name}
	if ref.Kind == kindRole {
		target.namespace = namespace
	}
	b.role = x.role(target)
	x.bindings[key] = b
	for i := range subjects {
		s, ok := subjectOf(&subjects[i], namespace)
		if !ok {
			continue
		}
		b.who[i] = s
		h := x.holders[s]
		if h == nil {
			h = &holder{key: s}
			x.holders[s] = h
		}
		if n := len(h.grants); n > 0 && h.grants[n-1].binding == b {
			continue // named twice
		}
		g := &grant{binding: b, role: b.role, holder: h, position: i}
		b.grants = append(b.grants, g)
		b.role.grants = append(b.role.grants, g)
		h.add(g)
	}
	x.dropUnused(b.role)
}

// DeleteBinding forgets a RoleBinding, or a ClusterRoleBinding for an empty
// namespace.
func (x *Index) DeleteBinding(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeBinding(objectKey{namespace, name})
}

func (x *Index) removeBinding(key objectKey) {
	b := x.bindings[key]
	if b == nil {
		return
	}
	delete(x.bindings, key)
	for _, g := range b.grants {
		g.holder.remove(g)
		if len(g.holder.grants) == 0 {
			delete(x.holders, g.holder.key)
		}
		b.role.grants = without(b.role.grants, g)
	}
	x.dropUnused(b.role)
}

// retainRoles forgets the roles that keep does not name: of the cluster, or of
// namespaces.
func (x *Index) retainRoles(cluster bool, keep func(namespace, name string) bool) {
	x.mu.RLock()
	var gone []roleKey
	for key, r := range x.roles {
		if r.exists && (key.namespace == "") == cluster && !keep(key.namespace, key.name) {
			gone = append(gone, key)
		}
	}
	x.mu.RUnlock()
	for _, key := range gone {
		x.DeleteRole(key.namespace, key.name)
	}
}

// retainBindings does the same for bindings.
func (x *Index) retainBindings(cluster bool, keep func(namespace, name string) bool) {
	x.mu.RLock()
	var gone []objectKey
	for key := range x.bindings {
		if (key.namespace == "") == cluster && !keep(key.namespace, key.name) {
			gone = append(gone, key)
		}
	}
	x.mu.RUnlock()
	for _, key := range gone {
		x.DeleteBinding(key.namespace, key.name)
	}
}

// subjectOf returns who a binding's subject is in the binding's scope; false for
// one that is nobody.
func subjectOf(s *rbacv1.Subject, bindingNamespace string) (subject, bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return subject{bindingNamespace, false, s.Name}, true
	case rbacv1.GroupKind:
		return subject{bindingNamespace, true, s.Name}, true
	case rbacv1.ServiceAccountKind:
		namespace := s.Namespace
		if namespace == "" {
			namespace = bindingNamespace
		}
		if namespace == "" {
			return subject{}, false
		}
		return subject{bindingNamespace, false, accountPrefix + namespace + ":" + s.Name}, true
	}
	return subject{}, false
}

// without removes an element; the order does not matter.
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

func (h *holder) add(g *grant) {
	h.grants = append(h.grants, g)
	if h.byTarget == nil && len(h.grants) > largeHolder {
		h.byTarget = map[string][]*grant{}
		for _, g := range h.grants {
			h.index(g)
		}
		return
	}
	h.index(g)
}

func (h *holder) remove(g *grant) {
	h.unindex(g)
	h.grants = without(h.grants, g)
	if len(h.grants) <= largeHolder/2 {
		h.byTarget, h.broad = nil, nil
	}
}

// index enters a grant below the resources of its role.
func (h *holder) index(g *grant) {
	if h.byTarget == nil {
		return
	}
	if g.role.broad() {
		h.broad = append(h.broad, g)
		return
	}
	g.role.eachTarget(func(name string) {
		if list := h.byTarget[name]; len(list) == 0 || list[len(list)-1] != g {
			h.byTarget[name] = append(list, g)
		}
	})
}

// unindex undoes index; the role must still be as it was then.
func (h *holder) unindex(g *grant) {
	if h.byTarget == nil {
		return
	}
	if g.role.broad() {
		h.broad = without(h.broad, g)
		return
	}
	g.role.eachTarget(func(name string) {
		if list := without(h.byTarget[name], g); len(list) > 0 {
			h.byTarget[name] = list
		} else {
			delete(h.byTarget, name)
		}
	})
}

// broad says that the names of the role's resources do not tell all that it is
// about: there are wildcards or URLs, or it is not there and that is to be said.
func (r *role) broad() bool {
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

// eachTarget visits the keys below which a holder finds the role.
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

// notFound is the error of a reference to a role that is not there.
func (b *binding) notFound() error {
	return b.notFoundAs(rbacv1.Resource(strings.ToLower(b.ref.Kind)))
}

// notFoundAs words it as if the role were of some resource.
func (b *binding) notFoundAs(resource schema.GroupResource) error {
	if b.ref.Kind != kindRole && b.ref.Kind != kindClusterRole {
		return fmt.Errorf("unsupported role reference kind: %q", b.ref.Kind)
	}
	return kerrors.NewNotFound(resource, b.ref.Name)
}

// mostLooked bounds the search for the first subject of a binding that is a user:
// beyond, the one that was found is as good.
const mostLooked = 64

// reason words why the grant allows a user something: by the first of the
// binding's subjects that the user is.
func (g *grant) reason(u *request.User) string {
	b, at := g.binding, g.position
	for i := range b.who[:min(at, mostLooked)] {
		if b.who[i].is(u) {
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
		namespace := s.Namespace
		if namespace == "" {
			namespace = b.namespace
		}
		who += "/" + namespace
	}
	return fmt.Sprintf("%s %q of %s %q to %s %q", kind, name, b.ref.Kind, b.ref.Name, s.Kind, who)
}
