// Package rules is what the x-kubernetes-validations of a structural schema mean:
// expressions of the Common Expression Language that are checked and costed when a
// definition is written, and evaluated when an object is (KEP-2876, KEP-4008).
//
// Functions, types and costs are those of Kubernetes' own environment, so that a
// rule means and costs the same here.
package rules

import (
	"math/rand/v2"
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The variables of a rule.
const (
	self    = "self"
	oldSelf = "oldSelf"
)

// environments returns what every expression may use, made when first asked for. New
// expressions may use what the release before the served one knows as well, so that
// a definition survives a rollback.
func environments() *environment.EnvSet {
	return environment.MustBaseEnvSet(version.MajorMinor(1, 35))
}

// A scope is what the expressions of one node of a schema see: self and oldSelf, and
// their type. Its environments are made when an expression needs them; they take 20
// KB and 80 µs each.
type scope struct {
	typ  *apiservercel.DeclType
	envs [4]*cel.Env
}

// newScope returns the scope of a node whose type is typ. The name of the type
// changes each time: nobody is to depend on it.
func newScope(typ *apiservercel.DeclType) *scope {
	return &scope{typ: typ.MaybeAssignTypeName("selfType" + strconv.Itoa(rand.IntN(1e9)))}
}

// env returns the environment of an expression: stored is that of expressions that
// were accepted before, optional that where oldSelf is an optional value.
func (s *scope) env(stored, optional bool) (*cel.Env, error) {
	i := 0
	if stored {
		i |= 1
	}
	if optional {
		i |= 2
	}
	if s.envs[i] != nil {
		return s.envs[i], nil
	}
	base := environments().NewExpressionsEnv()
	if stored {
		base = environments().StoredExpressionsEnv()
	}
	provider := apiservercel.NewDeclTypeProvider(s.typ)
	provider.SetRecognizeKeywordAsFieldName(true)
	opts, err := provider.EnvOptions(base.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	typ := s.typ.CelType()
	old := typ
	if optional {
		old = types.NewOptionalType(typ)
	}
	env, err := base.Extend(append(opts, cel.Variable(self, typ), cel.Variable(oldSelf, old))...)
	s.envs[i] = env
	return env, err
}
