// Package policy holds the roles and bindings that every cluster begins with, as
// Kubernetes 1.36 has them: what users, components and the controllers of
// kube-controller-manager are allowed.
package policy

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/scheme"
)

// objects has one object a line. What all have in common is left out: the label
// and the annotation below, and the API group of references.
//
//go:embed objects.jsonl
var objects []byte

// Label, with LabelValue, is on every default object.
const (
	Label      = "kubernetes.io/bootstrapping"
	LabelValue = "rbac-defaults"
)

// NodeRole is the ClusterRole of what all nodes are allowed. It is bound to
// nobody: the node authorizer asks it.
const NodeRole = "system:node"

// Moved returns by the name of a ClusterRole that aggregates others nowadays the
// name of the one that its own rules went to: those of an old cluster, with what
// was changed there, are to go along.
func Moved() map[string]string {
	return map[string]string{
		"admin": "system:aggregate-to-admin", "edit": "system:aggregate-to-edit", "view": "system:aggregate-to-view",
	}
}

// Split returns by the name of a ClusterRoleBinding that was once a part of
// another one the name of that one: in an old cluster its subjects are to be the
// same.
func Split() map[string]string {
	return map[string]string{"system:public-info-viewer": "system:discovery"}
}

// Objects returns new copies of all objects: ClusterRoles, ClusterRoleBindings,
// Roles and RoleBindings, in this order.
func Objects() ([]scheme.Object, error) {
	var out []scheme.Object
	for n, line := range bytes.Split(bytes.TrimSpace(objects), []byte("\n")) {
		obj, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("default role or binding %d: %w", n+1, err)
		}
		out = append(out, obj)
	}
	return out, nil
}

// NodeRules returns the rules of NodeRole.
func NodeRules() ([]rbacv1.PolicyRule, error) {
	all, err := Objects()
	if err != nil {
		return nil, err
	}
	for _, obj := range all {
		if role, ok := obj.(*rbacv1.ClusterRole); ok && role.Name == NodeRole {
			return role.Rules, nil
		}
	}
	return nil, fmt.Errorf("there is no default ClusterRole %s", NodeRole)
}

func parse(line []byte) (scheme.Object, error) {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(line, &meta); err != nil {
		return nil, err
	}
	var obj scheme.Object
	switch meta.Kind {
	case "ClusterRole":
		obj = &rbacv1.ClusterRole{}
	case "Role":
		obj = &rbacv1.Role{}
	case "ClusterRoleBinding":
		obj = &rbacv1.ClusterRoleBinding{}
	case "RoleBinding":
		obj = &rbacv1.RoleBinding{}
	default:
		return nil, fmt.Errorf("unknown kind %q", meta.Kind)
	}
	if err := json.Unmarshal(line, obj); err != nil {
		return nil, err
	}
	complete(obj)
	return obj, nil
}

// complete adds what all objects have in common.
func complete(obj scheme.Object) {
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as clients send it
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
