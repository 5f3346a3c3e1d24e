// Package writescope has the variables of expressions in admission webhooks and policies, and their types. Package
// internal/access/admission/celvars has their values.
package writescope

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/common/types"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
)

// Options are the variables that expressions may use in addition to those of every expression.
type Options struct {
	// Params adds params, Variables adds variables.
	Params, Variables bool
}

// ApplyConfigurationType is the type of an expression that makes an apply configuration.
func ApplyConfigurationType() *types.Type { return types.NewObjectType(mutation.ObjectTypeName) }

// JSONPatchesType is the type of an expression that makes the operations of a JSON patch.
func JSONPatchesType() *types.Type {
	return types.NewListType(types.NewObjectType(mutation.JSONPatchTypeName))
}

// Scopes compile the expressions of one webhook or policy. They may not be used by several goroutines at the same time.
type Scopes struct {
	// full has the variable authorizer, plain does not. patches has the same variables as full, and also the types
	// of patches.
	plain, full, patches *cel.Scope
	// variables is the type of the variable variables. It gets a field with each call of Declare.
	variables *apiservercel.DeclType
}

// New returns the scopes of one webhook or policy.
func New(o Options) *Scopes {
	s := &Scopes{}
	seen := []cel.Variable{
		{Name: Object, Type: apiservercel.DynType}, {Name: OldObject, Type: apiservercel.DynType},
		{Name: Namespace, Type: namespaceType()}, {Name: Request, Type: requestType()},
	}
	if o.Params {
		seen = append(seen, cel.Variable{Name: Params, Type: apiservercel.DynType})
	}
	if o.Variables {
		s.variables = apiservercel.NewObjectType("kubernetes.variables", map[string]*apiservercel.DeclField{})
		seen = append(seen, cel.Variable{Name: Variables, Type: s.variables})
	}
	s.plain = cel.NewScope(slices.Clone(seen)...)
	seen = append(seen, authorizerVariables()...)
	s.full, s.patches = cel.NewScope(seen...), cel.NewPatchScope(seen...)
	return s
}

// Declare adds a field to the variable variables. typ is nil if the expression of the field could not be compiled.
func (s *Scopes) Declare(name string, typ *types.Type) {
	s.variables.Fields[name] = apiservercel.NewDeclField(name, declared(typ), true, nil, nil)
}

// VariablesType returns the type of the variable variables, nil if there is no such variable.
func (s *Scopes) VariablesType() *apiservercel.DeclType { return s.variables }

// ProgramError is the error of an expression that is correct but cannot be evaluated.
type ProgramError struct{ err error }

func (e *ProgramError) Error() string { return "program " + e.err.Error() }
func (e *ProgramError) Unwrap() error { return e.err }

// Compile compiles an expression. The type of its value must be one of the given types; an empty list allows all. The
// variable authorizer exists if the argument authorizer is true. The error has the text of kube-apiserver; IsInternal
// reports whether it was not caused by the expression.
func (s *Scopes) Compile(
	source string, authorizer bool, origin cel.Origin, returns ...*types.Type,
) (*cel.Program, *types.Type, error) {
	scope := s.plain
	if authorizer {
		scope = s.full
	}
	return compile(scope, source, origin, returns)
}

// CompilePatch compiles an expression that makes a patch. It may use the variable authorizer. The other arguments and the
// results are those of Compile.
func (s *Scopes) CompilePatch(
	source string, origin cel.Origin, returns *types.Type,
) (*cel.Program, *types.Type, error) {
	return compile(s.patches, source, origin, []*types.Type{returns})
}

func compile(
	scope *cel.Scope, source string, origin cel.Origin, returns []*types.Type,
) (*cel.Program, *types.Type, error) {
	compiled, err := scope.Compile(source, origin)
	if err != nil {
		return nil, nil, err
	}
	typ := compiled.Type()
	if err := checkType(typ, returns); err != nil {
		return nil, nil, err
	}
	program, err := compiled.Program()
	if err != nil {
		return nil, nil, &ProgramError{err}
	}
	return program, typ, nil
}

// IsInternal reports whether an error of Compile is not about the expression.
func IsInternal(err error) bool {
	var environment *cel.EnvironmentError
	var program *ProgramError
	return errors.As(err, &environment) || errors.As(err, &program)
}

// checkType compares the type of an expression with the allowed types; an empty list allows all.
func checkType(typ *types.Type, allowed []*types.Type) error {
	for _, t := range allowed {
		if typ.IsExactType(t) {
			return nil
		}
	}
	switch len(allowed) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("must evaluate to %v but got %v", allowed[0], typ)
	}
	return fmt.Errorf("must evaluate to one of %v but got %v", allowed, typ)
}
