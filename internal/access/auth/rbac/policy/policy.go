// Package policy has the default roles and bindings of Kubernetes 1.37, which every cluster
// has from its start: those for users, for components, and for the controllers of
// kube-controller-manager.
package policy

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/structjson"
)

// objects has one object per line: ClusterRoles, ClusterRoleBindings, Roles and RoleBindings, and those that need a feature
// gate. Fields with the same value in all objects are left out: see complete. "gate" of an object or of a rule names the
// feature gate that it needs; "gatedURLs" are more URLs of a rule, by the gate that each needs.
//
//go:embed objects.jsonl
var objects []byte

// Every default object has the label Label with the value LabelValue.
const (
	Label      = "kubernetes.io/bootstrapping"
	LabelValue = "rbac-defaults"
)

// NodeRole is the ClusterRole with the permissions of all nodes. Nothing is bound to it: the
// node authorizer uses its rules.
const NodeRole = "system:node"

// ClusterRolesToAggregate maps each ClusterRole that aggregates others to the ClusterRole that now has its rules.
// In a cluster that was created before aggregation, the rules of the first, which users may have changed, have to
// be copied to the second.
func ClusterRolesToAggregate() map[string]string {
	return map[string]string{
		"admin": "system:aggregate-to-admin", "edit": "system:aggregate-to-edit", "view": "system:aggregate-to-view",
	}
}

// ClusterRoleBindingsToSplit maps the name of a ClusterRoleBinding to the name of an older one, of which it once
// was a part. In an old cluster the newer one gets the subjects of the older one.
func ClusterRoleBindingsToSplit() map[string]string {
	return map[string]string{"system:public-info-viewer": "system:discovery"}
}

// defaults returns the content of the embedded file, which is parsed once in a process. The callers must not change it.
var defaults = sync.OnceValues(func() ([]line, error) {
	var out []line
	for text := range bytes.Lines(objects) {
		var l line
		if !structjson.Decode(text, &l) {
			return nil, fmt.Errorf("default role or binding %d: not an object in JSON, or with unknown fields: %s", len(out)+1, text)
		}
		out = append(out, l)
	}
	return out, nil
})

// Objects returns new copies of all objects for the given feature gates, in the order of the embedded file.
func Objects(gates features.Gates) ([]scheme.Object, error) {
	return selected(gates, func(*line) bool { return true })
}

// selected returns new copies of those objects for which want returns true.
func selected(gates features.Gates, want func(*line) bool) ([]scheme.Object, error) {
	all, err := defaults()
	if err != nil {
		return nil, err
	}
	var out []scheme.Object
	for i := range all {
		if l := &all[i]; want(l) && (l.Gate == "" || gates.Enabled(l.Gate)) {
			obj, err := l.object(gates)
			if err != nil {
				return nil, err
			}
			out = append(out, obj)
		}
	}
	return out, nil
}

// NodeRules returns the rules of NodeRole.
func NodeRules(gates features.Gates) ([]rbacv1.PolicyRule, error) {
	roles, err := selected(gates, func(l *line) bool { return l.Kind == "ClusterRole" && l.Metadata.Name == NodeRole })
	if err != nil {
		return nil, err
	}
	if len(roles) != 1 {
		return nil, fmt.Errorf("there are %d default ClusterRoles %s", len(roles), NodeRole)
	}
	return roles[0].(*rbacv1.ClusterRole).Rules, nil
}

// line is the content of a line of the embedded file: the fields of all kinds of objects, and the feature gate.
type line struct {
	Kind            string                  `json:"kind"`
	Metadata        metav1.ObjectMeta       `json:"metadata"`
	Rules           []rule                  `json:"rules"`
	AggregationRule *rbacv1.AggregationRule `json:"aggregationRule"`
	RoleRef         rbacv1.RoleRef          `json:"roleRef"`
	Subjects        []rbacv1.Subject        `json:"subjects"`
	Gate            string                  `json:"gate"`
}

// rule is a PolicyRule with the feature gates that it, or one of its URLs, needs.
type rule struct {
	Verbs           []string          `json:"verbs"`
	APIGroups       []string          `json:"apiGroups"`
	Resources       []string          `json:"resources"`
	ResourceNames   []string          `json:"resourceNames"`
	NonResourceURLs []string          `json:"nonResourceURLs"`
	Gate            string            `json:"gate"`
	GatedURLs       map[string]string `json:"gatedURLs"`
}

// rules returns new copies of the rules for the given feature gates.
func (l *line) rules(gates features.Gates) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, r := range l.Rules {
		if r.Gate != "" && !gates.Enabled(r.Gate) {
			continue
		}
		urls := slices.Clone(r.NonResourceURLs)
		for gate, url := range r.GatedURLs {
			if gates.Enabled(gate) {
				urls = append(urls, url)
			}
		}
		slices.Sort(urls)
		out = append(out, rbacv1.PolicyRule{
			Verbs: slices.Clone(r.Verbs), APIGroups: slices.Clone(r.APIGroups), Resources: slices.Clone(r.Resources),
			ResourceNames: slices.Clone(r.ResourceNames), NonResourceURLs: urls,
		})
	}
	return out
}

// object returns a new copy of the object for the given feature gates.
func (l *line) object(gates features.Gates) (obj scheme.Object, err error) {
	metadata := *l.Metadata.DeepCopy()
	switch l.Kind {
	case "ClusterRole":
		obj = &rbacv1.ClusterRole{ObjectMeta: metadata, Rules: l.rules(gates), AggregationRule: l.AggregationRule.DeepCopy()}
	case "Role":
		obj = &rbacv1.Role{ObjectMeta: metadata, Rules: l.rules(gates)}
	case "ClusterRoleBinding":
		obj = &rbacv1.ClusterRoleBinding{ObjectMeta: metadata, RoleRef: l.RoleRef, Subjects: slices.Clone(l.Subjects)}
	case "RoleBinding":
		obj = &rbacv1.RoleBinding{ObjectMeta: metadata, RoleRef: l.RoleRef, Subjects: slices.Clone(l.Subjects)}
	default:
		return nil, fmt.Errorf("default role or binding %s: unknown kind %q", l.Metadata.Name, l.Kind)
	}
	complete(obj)
	return obj, nil
}

// complete sets the fields that are the same in all objects.
func complete(obj scheme.Object) {
	obj.SetAnnotations(map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"})
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[Label] = LabelValue
	obj.SetLabels(labels)
	switch b := obj.(type) {
	case *rbacv1.ClusterRoleBinding:
		setGroups(&b.RoleRef, b.Subjects)
	case *rbacv1.RoleBinding:
		setGroups(&b.RoleRef, b.Subjects)
	}
}

func setGroups(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	ref.APIGroup = rbacv1.GroupName
	for i := range subjects {
		if subjects[i].Kind != rbacv1.ServiceAccountKind {
			subjects[i].APIGroup = rbacv1.GroupName
		}
	}
}
