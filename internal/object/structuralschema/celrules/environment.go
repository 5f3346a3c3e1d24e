// Package celrules checks and evaluates the rules in x-kubernetes-validations of a structural schema: expressions of
// the Common Expression Language (KEP-2876; ratcheting: KEP-4008). Check checks the rules and estimates their cost
// when a definition is written; a Validator evaluates them when an object is written.
//
// Package cel compiles and evaluates the expressions. This package adds what is special to schemas: the types of
// values, the sizes that a schema allows, and old values.
package celrules

import (
	"math/rand/v2"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
)

// The variables of a rule.
const (
	self    = "self"
	oldSelf = "oldSelf"
)

// scope has the variables of the expressions of one node of a schema: self and oldSelf, both of the type of the
// node.
type scope struct {
	plain    *cel.Scope
	optional *cel.Scope // for rules with optionalOldSelf
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

// forRule returns the variables of the expressions of a rule.
func (s *scope) forRule(rule *apiextensionsv1.ValidationRule) *cel.Scope {
	if optionalOldSelf(rule) {
		return s.optional
	}
	return s.plain
}

// origins returns the origin of an expression. part is rulePart or messagePart.
type origins func(part, source string) cel.Origin
