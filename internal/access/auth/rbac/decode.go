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
	for rest := message; len(rest) > 0; {
		number, _, _, size, err := wire.NextField(rest)
		if err != nil {
			return nil, err
		}
		if number == field {
			n++
		}
		rest = rest[size:]
	}
	if n == 0 {
		return nil, nil
	}
	all = make([]T, 0, n)
	for len(message) > 0 {
		number, _, value, size, _ := wire.NextField(message) // the loop above has found no error
		if number == field {
			all = all[:len(all)+1]
			if err := unmarshal(&all[len(all)-1], value); err != nil {
				return all, err
			}
		}
		message = message[size:]
	}
	return all, nil
}
