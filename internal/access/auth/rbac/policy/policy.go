// Package policy has the default roles and bindings of Kubernetes 1.36, which every cluster
// has from its start: those for users, for components, and for the controllers of
// kube-controller-manager.
package policy

import (
	"bytes"
	_ "embed"
	"fmt"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/structjson"
)

// objects has one object per line. Fields with the same value in all objects are left out: see
// complete.
//
//go:embed objects.jsonl
var objects []byte

// gated has objects in the same form, each with the feature gate that it needs. The rules of a ClusterRole that is in
// objects too are added to it.
//
//go:embed gated.jsonl
var gated []byte

// Every default object has the label Label with the value LabelValue.
const (
	Label      = "kubernetes.io/bootstrapping"
	LabelValue = "rbac-defaults"
)

// NodeRole is the ClusterRole with the permissions of all nodes. Nothing is bound to it: the
// node authorizer uses its rules.
const NodeRole = "system:node"

// ClusterRolesToAggregate maps the names of the ClusterRoles that aggregate others to the
// names of the ClusterRoles that now have their rules. In a cluster that was created before
// aggregation, the rules with all changes have to be copied there.
func ClusterRolesToAggregate() map[string]string {
	return map[string]string{
		"admin": "system:aggregate-to-admin", "edit": "system:aggregate-to-edit", "view": "system:aggregate-to-view",
	}
}

// ClusterRoleBindingsToSplit maps the name of a ClusterRoleBinding to the name of the one that
// it was split from. In an old cluster it gets the same subjects.
func ClusterRoleBindingsToSplit() map[string]string {
	return map[string]string{"system:public-info-viewer": "system:discovery"}
}

// defaultObject is an object of the embedded files. gate is the feature gate that it needs, "" if it needs none.
type defaultObject struct {
	scheme.Object
	gate string
}

// defaults returns the objects of both embedded files, which are parsed once in a process. The callers must not change
// them.
var defaults = sync.OnceValues(func() ([]defaultObject, error) {
	var out []defaultObject
	for _, file := range [][]byte{objects, gated} {
		for text := range bytes.Lines(file) {
			obj, err := parse(text)
			if err != nil {
				return nil, fmt.Errorf("default role or binding %d: %w", len(out)+1, err)
			}
			out = append(out, obj)
		}
	}
	return out, nil
})

// Objects returns new copies of all objects for the given feature gates: ClusterRoles, ClusterRoleBindings, Roles and
// RoleBindings, in this order, and then the objects for gates.
func Objects(gates features.Gates) ([]scheme.Object, error) {
	return selected(gates, func(scheme.Object) bool { return true })
}

// selected returns new copies of those objects for which want returns true.
func selected(gates features.Gates, want func(scheme.Object) bool) ([]scheme.Object, error) {
	all, err := defaults()
	if err != nil {
		return nil, err
	}
	var out []scheme.Object
	for _, d := range all {
		if !want(d.Object) || d.gate != "" && !gates.Enabled(d.gate) {
			continue
		}
		obj := d.DeepCopyObject().(scheme.Object)
		if d.gate == "" || !addRules(out, obj) {
			out = append(out, obj)
		}
	}
	return out, nil
}

// addRules adds the rules of a ClusterRole to the one of the same name, and reports whether there is one.
func addRules(objs []scheme.Object, obj scheme.Object) bool {
	role, ok := obj.(*rbacv1.ClusterRole)
	if !ok {
		return false
	}
	for _, other := range objs {
		if there, ok := other.(*rbacv1.ClusterRole); ok && there.Name == role.Name {
			there.Rules = append(there.Rules, role.Rules...)
			return true
		}
	}
	return false
}

// NodeRules returns the rules of NodeRole.
func NodeRules(gates features.Gates) ([]rbacv1.PolicyRule, error) {
	roles, err := selected(gates, func(obj scheme.Object) bool {
		_, ok := obj.(*rbacv1.ClusterRole)
		return ok && obj.GetName() == NodeRole
	})
	if err != nil {
		return nil, err
	}
	if len(roles) != 1 {
		return nil, fmt.Errorf("there are %d default ClusterRoles %s", len(roles), NodeRole)
	}
	return roles[0].(*rbacv1.ClusterRole).Rules, nil
}

// line is the content of a line of the embedded files: the fields of all kinds of objects, and the feature gate.
type line struct {
	Kind            string                  `json:"kind"`
	Metadata        metav1.ObjectMeta       `json:"metadata"`
	Rules           []rbacv1.PolicyRule     `json:"rules"`
	AggregationRule *rbacv1.AggregationRule `json:"aggregationRule"`
	RoleRef         rbacv1.RoleRef          `json:"roleRef"`
	Subjects        []rbacv1.Subject        `json:"subjects"`
	Gate            string                  `json:"gate"`
}

func parse(text []byte) (defaultObject, error) {
	var l line
	if !structjson.Decode(text, &l) {
		return defaultObject{}, fmt.Errorf("not an object in JSON, or with unknown fields: %s", text)
	}
	var obj scheme.Object
	switch l.Kind {
	case "ClusterRole":
		obj = &rbacv1.ClusterRole{ObjectMeta: l.Metadata, Rules: l.Rules, AggregationRule: l.AggregationRule}
	case "Role":
		obj = &rbacv1.Role{ObjectMeta: l.Metadata, Rules: l.Rules}
	case "ClusterRoleBinding":
		obj = &rbacv1.ClusterRoleBinding{ObjectMeta: l.Metadata, RoleRef: l.RoleRef, Subjects: l.Subjects}
	case "RoleBinding":
		obj = &rbacv1.RoleBinding{ObjectMeta: l.Metadata, RoleRef: l.RoleRef, Subjects: l.Subjects}
	default:
		return defaultObject{}, fmt.Errorf("unknown kind %q", l.Kind)
	}
	complete(obj)
	return defaultObject{obj, l.Gate}, nil
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
