package rbac

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDecode checks that the fields read from stored bytes are equal to those of the whole objects, and that
// damaged bytes are an error.
func TestDecode(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "a", Namespace: "n", Labels: map[string]string{"k": "v"}}
	for _, rules := range [][]rbacv1.PolicyRule{nil, {
		{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"x"}},
		{}, {Verbs: []string{"*"}, NonResourceURLs: []string{"/healthz"}},
	}} {
		for _, role := range []interface{ Marshal() ([]byte, error) }{
			&rbacv1.Role{ObjectMeta: meta, Rules: rules},
			&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules, AggregationRule: &rbacv1.AggregationRule{}},
		} {
			message, err := role.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeRules(message)
			if err != nil || !equality.Semantic.DeepEqual(got, rules) {
				t.Errorf("%T: %+v, %v", role, got, err)
			}
			if _, err := decodeRules(message[:len(message)-1]); err == nil {
				t.Errorf("%T: a part of the message was decoded", role)
			}
		}
	}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"}
	for _, subjects := range [][]rbacv1.Subject{nil, {{Kind: "User", Name: "u"}, {Kind: "ServiceAccount", Namespace: "n", Name: "s"}}} {
		for _, binding := range []interface{ Marshal() ([]byte, error) }{
			&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects},
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects},
		} {
			message, err := binding.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			gotRef, got, err := decodeBinding(message)
			if err != nil || gotRef != ref || !equality.Semantic.DeepEqual(got, subjects) {
				t.Errorf("%T: %+v %+v, %v", binding, gotRef, got, err)
			}
		}
	}
}
