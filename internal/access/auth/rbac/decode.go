package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// The numbers of the fields that are read from the protobuf messages of objects: rules of Role and ClusterRole; subjects
// and roleRef of RoleBinding and ClusterRoleBinding (k8s.io/api/rbac/v1, generated.proto). The metadata, which is the
// larger part of most of these objects, is not decoded.
const (
	rulesField    = 2
	subjectsField = 2
	roleRefField  = 3
)

// decodeRules returns the rules of a stored Role or ClusterRole.
func decodeRules(message []byte) (rules []rbacv1.PolicyRule, err error) {
	return decodeAll(message, rulesField, (*rbacv1.PolicyRule).Unmarshal)
}

// decodeBinding returns the role and the subjects of a stored RoleBinding or ClusterRoleBinding.
func decodeBinding(message []byte) (ref rbacv1.RoleRef, subjects []rbacv1.Subject, err error) {
	found, err := wire.Find(message, []int32{roleRefField})
	if err == nil && found.Found {
		err = ref.Unmarshal(found.Bytes)
	}
	if err != nil {
		return ref, nil, err
	}
	subjects, err = decodeAll(message, subjectsField, (*rbacv1.Subject).Unmarshal)
	return ref, subjects, err
}

// decodeAll returns the elements of a repeated field.
func decodeAll[T any](message []byte, field int32, unmarshal func(*T, []byte) error) (all []T, err error) {
	n := 0
	if err := wire.EachField(message, func(number int32, _ wire.Value) bool {
		if number == field {
			n++
		}
		return true
	}); err != nil || n == 0 {
		return nil, err
	}
	all = make([]T, 0, n)
	malformed := wire.EachField(message, func(number int32, v wire.Value) bool {
		if number == field {
			all = all[:len(all)+1]
			err = unmarshal(&all[len(all)-1], v.Bytes)
		}
		return err == nil
	})
	if err == nil {
		err = malformed
	}
	return all, err
}
