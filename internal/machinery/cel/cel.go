// Package cel compiles and evaluates expressions of the Common Expression Language as Kubernetes uses it. All parts of
// the server that have expressions use it: validation rules of custom resources, claims of tokens, match conditions.
//
// Functions, types and costs are those of Kubernetes' own environment, so that an expression has the same meaning and
// cost as in kube-apiserver. In addition, calls whose result would be larger than the size limit of objects fail
// (bounds.go).
//
// A Scope has the variables that expressions see. Scope.Compile makes an Expression, which has a type and an estimated
// cost. Expression.Program makes a Program of it, which is evaluated with values of the variables and a Budget.
//
// The environment is created when it is first needed, which takes some milliseconds.
package cel

import (
	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/keelson-dev/keelson/internal/machinery/release"
)

// environments returns the environments without variables; the first call makes them. The
// environment of new expressions has only what the minor before the newest one also has, so
// that a server of that minor can evaluate the stored expressions after a rollback.
func environments() *environment.EnvSet {
	return environment.MustBaseEnvSet(version.MajorMinor(1, release.Newest-1))
}

// An Origin is the source of an expression. It decides which functions and variables the expression may use.
type Origin int

const (
	// New expressions are written by the request at hand.
	New Origin = iota
	// Stored expressions were accepted before, or stand in a file of configuration.
	Stored

	origins
)

// A Variable is a name that expressions may use, and the type of its value.
type Variable struct {
	Name string
	Type *apiservercel.DeclType
	// Optional reports whether the value is an optional value of Type.
	Optional bool
}

// A Scope is the variables that expressions see. Its environments are made when the
// first expression is compiled; they take 20 KB and 80 µs each. It may not be used by
// several goroutines at the same time.
type Scope struct {
	variables []Variable
	patches   bool // expressions may make patches
	options   []celgo.EnvOption
	envs      [origins]*celgo.Env
}

// NewScope returns the scope of some variables.
func NewScope(variables ...Variable) *Scope { return &Scope{variables: variables} }

// NewPatchScope returns the scope of some variables in which expressions may also make patches: values of the types
// Object (and Object.spec, Object.spec.template and so on) and JSONPatch.
func NewPatchScope(variables ...Variable) *Scope { return &Scope{variables: variables, patches: true} }

// With adds options, such as functions, to the environments of the scope, and returns the scope. An expression
// that uses these additions has a type and an estimated cost, but Program fails for it.
func (s *Scope) With(options ...celgo.EnvOption) *Scope {
	s.options = append(s.options, options...)
	return s
}

// patchOptions add the types and functions of expressions that make patches to an environment.
func patchOptions() []celgo.EnvOption {
	return []celgo.EnvOption{common.ResolverEnvOption(&mutation.DynamicTypeResolver{}), library.JSONPatch()}
}

// env returns the environment of expressions of an origin.
func (s *Scope) env(origin Origin) (*celgo.Env, error) {
	if s.envs[origin] != nil {
		return s.envs[origin], nil
	}
	base := environments().NewExpressionsEnv()
	if origin == Stored {
		base = environments().StoredExpressionsEnv()
	}
	declared := make([]*apiservercel.DeclType, len(s.variables))
	for i := range s.variables {
		declared[i] = s.variables[i].Type
	}
	provider := apiservercel.NewDeclTypeProvider(declared...)
	provider.SetRecognizeKeywordAsFieldName(true)
	opts, err := provider.EnvOptions(base.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	for i := range s.variables {
		v := &s.variables[i]
		typ := v.Type.CelType()
		if v.Optional {
			typ = types.NewOptionalType(typ)
		}
		opts = append(opts, celgo.Variable(v.Name, typ))
	}
	if s.patches {
		opts = append(opts, patchOptions()...)
	}
	env, err := base.Extend(append(opts, s.options...)...)
	s.envs[origin] = env
	return env, err
}

// An EnvironmentError is returned if there is no environment to compile expressions in. It is caused by the types of
// the variables, not by the expression.
type EnvironmentError struct{ err error }

func (e *EnvironmentError) Error() string {
	return "unexpected error loading CEL environment: " + e.err.Error()
}
func (e *EnvironmentError) Unwrap() error { return e.err }

// A CompileError describes what is wrong with an expression.
type CompileError struct {
	// Issues is the text of cel-go about the errors, with their places in the expression.
	Issues string
}

func (e *CompileError) Error() string { return "compilation failed: " + e.Issues }

// An Expression was parsed, and its types were checked.
type Expression struct {
	env     *celgo.Env
	ast     *celgo.Ast
	patches bool // as of its scope
}

// Compile parses an expression and checks its types. The error is a *CompileError, with the message of kube-apiserver,
// or an *EnvironmentError.
func (s *Scope) Compile(source string, origin Origin) (*Expression, error) {
	env, err := s.env(origin)
	if err != nil {
		return nil, &EnvironmentError{err}
	}
	ast, issues := env.Compile(source)
	if issues != nil {
		return nil, &CompileError{issues.String()}
	}
	return &Expression{env, ast, s.patches}, nil
}

// Type returns the type of the expression's value. Types are compared with ==, with
// types.BoolType for instance.
func (e *Expression) Type() *types.Type { return e.ast.OutputType() }

// Uses reports whether the expression mentions a variable.
func (e *Expression) Uses(variable string) bool {
	for _, reference := range e.ast.NativeRep().ReferenceMap() {
		if reference.Name == variable {
			return true
		}
	}
	return false
}

// Selects reports whether the expression selects a member of a variable by its name:
// claims.email or claims.?email, but not claims["email"].
func (e *Expression) Selects(variable, member string) bool {
	found := false
	isVariable := func(x ast.Expr) bool { return x.Kind() == ast.IdentKind && x.AsIdent() == variable }
	ast.PreOrderVisit(e.ast.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		switch x.Kind() {
		case ast.SelectKind:
			s := x.AsSelect()
			found = found || isVariable(s.Operand()) && s.FieldName() == member
		case ast.CallKind: // claims.?email
			c := x.AsCall()
			if args := c.Args(); c.FunctionName() == operators.OptSelect && len(args) == 2 && isVariable(args[0]) {
				found = found || args[1].Kind() == ast.LiteralKind && args[1].AsLiteral() == types.String(member)
			}
		}
	}))
	return found
}

// MaxCost returns the highest possible cost of one evaluation, in CEL cost units. sizes estimates the sizes of values.
func (e *Expression) MaxCost(sizes checker.CostEstimator) (uint64, error) {
	cost, err := e.env.EstimateCost(e.ast, &library.CostEstimator{SizeEstimator: sizes})
	return cost.Max, err
}
