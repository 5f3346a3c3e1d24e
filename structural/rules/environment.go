// Package rules is what the x-kubernetes-validations of a structural schema mean:
// expressions of the Common Expression Language that are checked and costed when a
// definition is written, and evaluated when an object is (KEP-2876, KEP-4008).
//
// Package cel compiles and evaluates the expressions. This package has what is particular
// to schemas: the types of values, the sizes that a schema allows, and old values.
package rules

import (
	"math/rand/v2"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/keelson-dev/keelson/cel"
)

// The variables of a rule.
const (
	self    = "self"
	oldSelf = "oldSelf"
)

// A scope is what the expressions of one node of a schema see: self and oldSelf, both of
// the type of the node.
type scope struct {
	plain    *cel.Scope
	optional *cel.Scope // where oldSelf is an optional value
}

// newScope returns the scope of a node whose type is typ. The name of the type is random,
// so that no expression depends on it.
func newScope(typ *apiservercel.DeclType) *scope {
	typ = typ.MaybeAssignTypeName("selfType" + strconv.Itoa(rand.IntN(1e9)))
	return &scope{
		plain:    cel.NewScope(cel.Variable{Name: self, Type: typ}, cel.Variable{Name: oldSelf, Type: typ}),
		optional: cel.NewScope(cel.Variable{Name: self, Type: typ}, cel.Variable{Name: oldSelf, Type: typ, Optional: true}),
	}
}

// of returns what the expressions of a rule see.
func (s *scope) of(rule *apiextensionsv1.ValidationRule) *cel.Scope {
	if optionalOldSelf(rule) {
		return s.optional
	}
	return s.plain
}

// origins returns the origin of an expression, which is a part of a rule.
type origins func(part, source string) cel.Origin
