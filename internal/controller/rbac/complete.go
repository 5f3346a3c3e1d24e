package rbac

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/rbac"
	"github.com/keelson-dev/keelson/internal/access/auth/rbac/policy"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// isProtected reports whether the annotation of an object forbids to update it.
func isProtected(obj registry.Object) bool {
	return obj.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false"
}

// sameRole reports whether two bindings refer to the same role.
func sameRole(a, b registry.Object) bool {
	switch a := a.(type) {
	case *rbacv1.ClusterRoleBinding:
		return a.RoleRef == b.(*rbacv1.ClusterRoleBinding).RoleRef
	case *rbacv1.RoleBinding:
		return a.RoleRef == b.(*rbacv1.RoleBinding).RoleRef
	}
	return true
}

// addMissing adds the entries that only wanted has to obj, and reports whether that changed obj. Entries that only
// obj has are kept, because users may have added them.
func addMissing(obj, wanted registry.Object) bool {
	annotations, changed := merge(obj.GetAnnotations(), wanted.GetAnnotations())
	if changed {
		obj.SetAnnotations(annotations)
	}
	labels, more := merge(obj.GetLabels(), wanted.GetLabels())
	if more {
		obj.SetLabels(labels)
	}
	changed = changed || more
	switch obj := obj.(type) {
	case *rbacv1.Role:
		return addRules(&obj.Rules, wanted.(*rbacv1.Role).Rules) || changed
	case *rbacv1.ClusterRole:
		want := wanted.(*rbacv1.ClusterRole)
		rules, selectors := addRules(&obj.Rules, want.Rules), addSelectors(obj, want)
		return rules || selectors || changed
	case *rbacv1.RoleBinding:
		return addSubjects(&obj.Subjects, wanted.(*rbacv1.RoleBinding).Subjects) || changed
	case *rbacv1.ClusterRoleBinding:
		return addSubjects(&obj.Subjects, wanted.(*rbacv1.ClusterRoleBinding).Subjects) || changed
	}
	return changed
}

// merge adds the pairs whose keys are missing.
func merge(have, want map[string]string) (map[string]string, bool) {
	changed := false
	for k, v := range want {
		if _, ok := have[k]; ok {
			continue
		}
		if have == nil {
			have = map[string]string{}
		}
		have[k], changed = v, true
	}
	return have, changed
}

func addRules(have *[]rbacv1.PolicyRule, want []rbacv1.PolicyRule) bool {
	missing := rbac.Uncovered(*have, want)
	*have = append(*have, missing...)
	return len(missing) > 0
}

// addSelectors adds the missing selectors of an aggregated ClusterRole. A role that should not
// be aggregated loses its aggregationRule.
func addSelectors(have, want *rbacv1.ClusterRole) bool {
	if want.AggregationRule == nil {
		changed := have.AggregationRule != nil
		have.AggregationRule = nil
		return changed
	}
	changed := false
	for _, s := range want.AggregationRule.ClusterRoleSelectors {
		if have.AggregationRule == nil {
			have.AggregationRule = &rbacv1.AggregationRule{}
		}
		list := &have.AggregationRule.ClusterRoleSelectors
		if !slices.ContainsFunc(*list, func(h metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(h, s) }) {
			*list, changed = append(*list, s), true
		}
	}
	return changed
}

func addSubjects(have *[]rbacv1.Subject, want []rbacv1.Subject) bool {
	changed := false
	for _, s := range want {
		if !slices.Contains(*have, s) {
			*have, changed = append(*have, s), true
		}
	}
	return changed
}

// legacyObjects returns objects of an old cluster from which default objects are copied: roles that are now
// aggregated, and bindings that were split. The keys of the map are those of the default objects.
func (s state) legacyObjects(ctx context.Context, wanted []registry.Object) (map[key]registry.Object, error) {
	out := map[key]registry.Object{}
	for old, name := range policy.ClusterRolesToAggregate() {
		from, err := s.legacyObject(ctx, key{"clusterroles", "", old}, key{"clusterroles", "", name})
		if err != nil {
			return nil, err
		}
		if role, ok := from.(*rbacv1.ClusterRole); ok && role.AggregationRule == nil {
			role.Name, role.ResourceVersion, role.ManagedFields = name, "", nil
			out[keyOf(role)] = role
		}
	}
	for name, old := range policy.ClusterRoleBindingsToSplit() {
		from, err := s.legacyObject(ctx, key{"clusterrolebindings", "", old}, key{"clusterrolebindings", "", name})
		if err != nil {
			return nil, err
		}
		if binding, ok := from.(*rbacv1.ClusterRoleBinding); ok {
			part := &rbacv1.ClusterRoleBinding{Subjects: binding.Subjects, RoleRef: binding.RoleRef}
			part.Name, part.Labels, part.Annotations = name, binding.Labels, binding.Annotations
			for _, w := range wanted {
				if w, ok := w.(*rbacv1.ClusterRoleBinding); ok && w.Name == name {
					part.RoleRef = w.RoleRef
				}
			}
			out[keyOf(part)] = part
		}
	}
	return out, nil
}

// legacyObject returns the old object if the new one does not exist, otherwise nil.
func (s state) legacyObject(ctx context.Context, old, name key) (registry.Object, error) {
	there, err := s.find(ctx, name)
	if err != nil || there != nil {
		return nil, err
	}
	return s.find(ctx, old)
}
