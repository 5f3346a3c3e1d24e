package oidc

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The variables of expressions: one has claims or the user, never both.
const (
	claimsVariable = "claims"
	userVariable   = "user"
)

// expression is a compiled expression.
type expression struct {
	text     string
	variable string
	message  string // of a rule that does not hold, "" for none
	ast      *cel.Ast
	program  cel.Program
}

// compile compiles an expression that sees one variable. boolean asks for one that
// says yes or no.
func compile(text, variable string, boolean bool) (*expression, error) {
	env, err := environmentOf(variable)
	if err != nil {
		return nil, fmt.Errorf("unexpected error loading CEL environment: %w", err)
	}
	tree, issues := env.Compile(text)
	if issues != nil {
		return nil, errors.New("compilation failed: " + issues.String())
	}
	if boolean && tree.OutputType() != cel.BoolType {
		return nil, errors.New("must evaluate to bool")
	}
	program, err := env.Program(tree)
	if err != nil {
		return nil, fmt.Errorf("program instantiation failed: %w", err)
	}
	return &expression{text: text, variable: variable, ast: tree, program: program}, nil
}

// environmentOf returns what expressions may use.
func environmentOf(variable string) (*cel.Env, error) {
	typ := apiservercel.NewMapType(apiservercel.StringType, apiservercel.AnyType, -1)
	if variable == userVariable {
		typ = userType()
	}
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable(variable, typ.CelType())},
		DeclTypes:         []*apiservercel.DeclType{typ},
	})
	if err != nil {
		return nil, err
	}
	return set.StoredExpressionsEnv(), nil
}

func userType() *apiservercel.DeclType {
	text := apiservercel.StringType
	list := apiservercel.NewListType(text, -1)
	fields := map[string]*apiservercel.DeclField{}
	for name, typ := range map[string]*apiservercel.DeclType{
		"username": text, "uid": text, "groups": list, "extra": apiservercel.NewMapType(text, list, -1),
	} {
		fields[name] = apiservercel.NewDeclField(name, typ, false, nil, nil)
	}
	return apiservercel.NewObjectType("kubernetes.UserInfo", fields)
}

func (e *expression) eval(ctx context.Context, value map[string]any) (ref.Val, error) {
	out, _, err := e.program.ContextEval(ctx, map[string]any{e.variable: value})
	if err != nil {
		return nil, fmt.Errorf("expression '%s' resulted in error: %w", e.text, err)
	}
	return out, nil
}

// holds says why a rule does not hold, nil if it does.
func (e *expression) holds(ctx context.Context, value map[string]any) error {
	out, err := e.eval(ctx, value)
	if err != nil {
		return err
	}
	if yes, ok := out.Value().(bool); !ok || !yes {
		if e.message == "" {
			return fmt.Errorf("validation expression '%s' failed", e.text)
		}
		return fmt.Errorf("validation expression '%s' failed: %s", e.text, e.message)
	}
	return nil
}

// looksAt says whether the expression selects that claim by name.
func (e *expression) looksAt(claim string) bool {
	found := false
	isClaims := func(x ast.Expr) bool { return x.Kind() == ast.IdentKind && x.AsIdent() == claimsVariable }
	ast.PreOrderVisit(e.ast.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		switch x.Kind() {
		case ast.SelectKind:
			s := x.AsSelect()
			found = found || isClaims(s.Operand()) && s.FieldName() == claim
		case ast.CallKind: // claims.?email
			c := x.AsCall()
			if args := c.Args(); c.FunctionName() == operators.OptSelect && len(args) == 2 && isClaims(args[0]) {
				found = found || args[1].Kind() == ast.LiteralKind && args[1].AsLiteral() == types.String(claim)
			}
		}
	}))
	return found
}

// textsOf returns the text or texts that an expression gave; empty ones do not
// count.
func textsOf(v ref.Val) ([]string, error) {
	var out []string
	add := func(v ref.Val) error {
		text, ok := v.Value().(string)
		if !ok {
			return errors.New("expression must return a string or a list of strings")
		}
		if text != "" {
			out = append(out, text)
		}
		return nil
	}
	if v.Type() == types.NullType {
		return nil, nil
	}
	list, ok := v.(traits.Lister)
	if !ok {
		return out, add(v)
	}
	for it := list.Iterator(); it.HasNext() == types.True; {
		if err := add(it.Next()); err != nil {
			return nil, err
		}
	}
	return out, nil
}
