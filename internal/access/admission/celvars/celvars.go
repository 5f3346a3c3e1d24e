// Package celvars compiles and evaluates the expressions of webhooks and policies. It has their variables: object,
// oldObject, request, namespaceObject, params, authorizer, authorizer.requestResource and variables.
//
// A Compiler makes the Expressions of one webhook or policy. A Write has the values for all expressions about one
// write in one version; its parts are converted when they are first used. Values adds to a Write the values that
// differ between policies and bindings, and the results of the variables that the policy declares.
package celvars

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
	"github.com/keelson-dev/keelson/internal/machinery/cel/writescope"
)

const (
	// Budget is the total cost limit of the expressions of a policy for one write, binding and parameter.
	Budget cel.Budget = celconfig.RuntimeCELCostBudget
	// conditionsBudget is the total cost limit of match conditions.
	conditionsBudget cel.Budget = celconfig.RuntimeCELCostBudgetMatchConditions
)

// Options say which optional variables, such as params, expressions may use.
type Options = writescope.Options

// Compiler compiles the expressions of one webhook or policy. It may not be used by several goroutines at the same time.
type Compiler struct {
	scopes   *writescope.Scopes
	compiled *Variables
}

// Variables are the variables that a policy declares.
type Variables struct {
	typ   *apiservercel.DeclType
	named []variable
}

type variable struct {
	name       string
	expression *Expression
}

// NewCompiler returns a compiler.
func NewCompiler(o Options) *Compiler {
	c := &Compiler{scopes: writescope.New(o)}
	if o.Variables {
		c.compiled = &Variables{typ: c.scopes.VariablesType()}
	}
	return c
}

// Variable compiles the expression of a variable of the policy. Expressions that are compiled later may use it. If it
// does not compile, each evaluation returns the error.
func (c *Compiler) Variable(name, source string) *Expression {
	e, typ := c.compile(source, true, nil)
	c.scopes.Declare(name, typ)
	c.compiled.named = append(c.compiled.named, variable{name, e})
	return e
}

// Variables returns the variables that were compiled; nil if the compiler was made without them.
func (c *Compiler) Variables() *Variables { return c.compiled }

// Expression is a compiled expression, or one that could not be compiled. It may be used by several goroutines at the
// same time.
type Expression struct {
	// Source is the text of the expression.
	Source string
	// Err is set if the expression could not be compiled.
	Err     error
	program *cel.Program
}

// Compile compiles an expression whose value has to be of one of the given types. The expression may use the
// variable authorizer only if the parameter authorizer is true.
func (c *Compiler) Compile(source string, authorizer bool, returns ...*types.Type) *Expression {
	e, _ := c.compile(source, authorizer, returns)
	return e
}

// CompilePatch compiles an expression that makes a patch of a type of package writescope.
func (c *Compiler) CompilePatch(source string, returns *types.Type) *Expression {
	program, _, err := c.scopes.CompilePatch(source, cel.Stored, returns)
	return &Expression{Source: source, Err: err, program: program}
}

func (c *Compiler) compile(source string, authorizer bool, returns []*types.Type) (*Expression, *types.Type) {
	program, typ, err := c.scopes.Compile(source, authorizer, cel.Stored, returns...)
	return &Expression{Source: source, Err: err, program: program}, typ
}

// errBudget is the text of kube-apiserver.
const errBudget = "validation failed due to running out of cost budget, no further validation rules will be run"

// FatalError ends the evaluation of a list of expressions: the budget is exceeded, or a cost is not known.
type FatalError struct{ err error }

func (e *FatalError) Error() string {
	if errors.Is(e.err, cel.ErrBudget) {
		return errBudget
	}
	return e.err.Error()
}

func (e *FatalError) Unwrap() error { return e.err }

// Evaluate evaluates the expression and subtracts the cost from the budget, including the cost of the variables that it
// used. The error is a *FatalError, or has kube-apiserver's message about the expression.
func (e *Expression) Evaluate(ctx context.Context, v *Values, budget *cel.Budget) (ref.Val, error) {
	if e.Err != nil {
		return nil, fmt.Errorf("compilation error: %w", e.Err)
	}
	v.ctx, v.budget, v.exhausted = ctx, budget, false
	value, err := e.program.Evaluate(ctx, v, budget)
	switch {
	case v.exhausted || errors.Is(err, cel.ErrBudget):
		budget.Exhaust()
		return nil, &FatalError{cel.ErrBudget}
	case errors.Is(err, cel.ErrUnknownCost):
		budget.Exhaust()
		return nil, &FatalError{fmt.Errorf(
			"runtime cost could not be calculated for expression: %v, no further expression will be run", e.Source)}
	case err != nil:
		return nil, fmt.Errorf("expression '%v' resulted in error: %w", e.Source, err)
	}
	return value, nil
}

// Result is the result of one of several expressions.
type Result struct {
	Value ref.Val
	Err   error
	Took  time.Duration
}

// EvaluateAll evaluates expressions in order; entries that are nil have the zero Result. An error is a *FatalError; there
// are no results then.
func EvaluateAll(ctx context.Context, expressions []*Expression, v *Values, budget *cel.Budget) ([]Result, error) {
	results := make([]Result, len(expressions))
	for i, e := range expressions {
		if e == nil {
			continue
		}
		begin := time.Now()
		results[i].Value, results[i].Err = e.Evaluate(ctx, v, budget)
		results[i].Took = time.Since(begin)
		var fatal *FatalError
		if errors.As(results[i].Err, &fatal) {
			return nil, fatal
		}
	}
	return results, nil
}

// Conditions are the match conditions of a webhook or policy.
type Conditions []*Expression

// Conditions compiles match conditions.
func (c *Compiler) Conditions(list []admissionregistrationv1.MatchCondition) Conditions {
	out := make(Conditions, len(list))
	for i := range list {
		out[i] = c.Compile(list[i].Expression, true, types.BoolType)
	}
	return out
}

// ConditionsResult is the result of match conditions.
type ConditionsResult struct {
	// Match is true if all conditions are true. Err is set if this is not known.
	Match bool
	Err   error
	// Failed is the number of conditions with an error before the first that is false.
	Failed int
	Took   time.Duration
}

// Evaluate evaluates the conditions. If one is false, errors of the others do not matter.
func (c Conditions) Evaluate(ctx context.Context, v *Values) ConditionsResult {
	if len(c) == 0 {
		return ConditionsResult{Match: true}
	}
	begin, budget := time.Now(), conditionsBudget
	results, err := EvaluateAll(ctx, c, v, &budget)
	out := ConditionsResult{Took: time.Since(begin)}
	if err != nil {
		out.Err, out.Failed = err, 1
		return out
	}
	var failed []error
	for _, r := range results {
		if r.Err != nil {
			failed = append(failed, r.Err)
		} else if r.Value == types.False {
			out.Failed = len(failed)
			return out
		}
	}
	out.Match, out.Failed, out.Err = len(failed) == 0, len(failed), utilerrors.NewAggregate(failed)
	return out
}
