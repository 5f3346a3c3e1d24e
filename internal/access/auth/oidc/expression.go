package oidc

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
)

// The variables of expressions. An expression can use either the claims or the user, not both.
const (
	claimsVariable = "claims"
	userVariable   = "user"
)

// expression is a compiled expression.
type expression struct {
	*cel.Expression
	source   string
	variable string
	message  string // the message of a validation rule; may be ""
	program  *cel.Program
}

// compile compiles an expression that can use one variable. If boolean is true, the expression
// has to return a bool.
func compile(text, variable string, boolean bool) (*expression, error) {
	e, err := scopeOf(variable).Compile(text, cel.Stored)
	if err != nil {
		return nil, err
	}
	if boolean && e.Type() != types.BoolType {
		return nil, errors.New("must evaluate to bool")
	}
	program, err := e.Program()
	if err != nil {
		return nil, fmt.Errorf("program %w", err)
	}
	return &expression{Expression: e, source: text, variable: variable, program: program}, nil
}

// scopeOf returns the scope of expressions that can use one variable.
func scopeOf(variable string) *cel.Scope {
	typ := apiservercel.NewMapType(apiservercel.StringType, apiservercel.AnyType, -1)
	if variable == userVariable {
		typ = userType()
	}
	return cel.NewScope(cel.Variable{Name: variable, Type: typ})
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
	out, err := e.program.Evaluate(ctx, cel.Values{e.variable: value}, nil)
	if err != nil {
		return nil, fmt.Errorf("expression '%s' resulted in error: %w", e.source, err)
	}
	return out, nil
}

// text evaluates an expression that has to return a string. claim is the name of the expression in errors.
func (e *expression) text(ctx context.Context, claim string, values map[string]any) (string, error) {
	out, err := e.eval(ctx, values)
	if err != nil {
		return "", fmt.Errorf("oidc: error evaluating %s claim expression: %w", claim, err)
	}
	text, ok := out.Value().(string)
	if !ok {
		return "", fmt.Errorf("oidc: error evaluating %s claim expression: %s claim expression must return a string", claim, claim)
	}
	return text, nil
}

// checkRule returns nil if the expression, which is a validation rule, is true. Otherwise it
// returns an error with the message of the rule.
func (e *expression) checkRule(ctx context.Context, value map[string]any) error {
	out, err := e.eval(ctx, value)
	if err != nil {
		return err
	}
	if yes, ok := out.Value().(bool); !ok || !yes {
		if e.message == "" {
			return fmt.Errorf("validation expression '%s' failed", e.source)
		}
		return fmt.Errorf("validation expression '%s' failed: %s", e.source, e.message)
	}
	return nil
}

// textsOf returns the string or the strings that an expression has returned, without empty
// ones.
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
