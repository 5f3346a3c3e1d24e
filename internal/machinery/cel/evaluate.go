package cel

import (
	"context"
	"errors"
	"math"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// A Budget is the remaining cost of several evaluations together, in CEL cost units. It is negative after it was
// exceeded.
type Budget int64

// ObjectBudget is the budget of all validation rules for one custom resource.
const ObjectBudget Budget = celconfig.RuntimeCELCostBudget

// pay takes a cost from the budget. It returns false if the budget is smaller than that.
func (b *Budget) pay(cost uint64) bool {
	if cost > math.MaxInt64 || Budget(cost) > *b {
		return false
	}
	*b -= Budget(cost)
	return true
}

// Exhaust leaves nothing of the budget.
func (b *Budget) Exhaust() { *b = -1 }

// The kinds of errors of Evaluate. Any other error describes a failure of the expression itself, such as a division by
// zero.
var (
	// ErrUnknownCost means that the cost of the evaluation is not known.
	ErrUnknownCost = errors.New("the cost of the evaluation is not known")
	// ErrBudget means that the cost of the evaluation exceeds the budget.
	ErrBudget = errors.New("the cost of the evaluation exceeds the budget")
	// ErrCallLimit means that the evaluation was ended because it exceeded the cost limit of one evaluation.
	ErrCallLimit = errors.New("the cost of the evaluation exceeds the limit of one call")
	// ErrNoOverload means that a function was called with values of types that it does not accept.
	ErrNoOverload = errors.New("a function does not take arguments of these types")
)

// An evaluationError is an error of the library together with its kind.
type evaluationError struct {
	kind error // one of the errors above
	err  error
}

func (e *evaluationError) Error() string   { return e.err.Error() }
func (e *evaluationError) Unwrap() []error { return []error{e.kind, e.err} }

// classified returns an evaluationError for an error of cel-go that has one of the kinds above, else err itself.
func classified(err error) error {
	switch text := err.Error(); {
	case strings.HasPrefix(text, "no such overload"):
		return &evaluationError{ErrNoOverload, err}
	case strings.HasPrefix(text, "operation cancelled: actual cost limit exceeded"):
		return &evaluationError{ErrCallLimit, err}
	}
	return err
}

// Variables are the values that an evaluation has for the variables of its scope.
type Variables = celgo.Activation

// Values are Variables by their names. The values may be of types of Go: maps, slices,
// texts and numbers.
type Values map[string]any

// ResolveName returns the value of a variable.
func (v Values) ResolveName(name string) (any, bool) {
	value, ok := v[name]
	return value, ok
}

// Parent returns nil: there are no other variables.
func (Values) Parent() celgo.Activation { return nil }

// A Program is an expression that is ready to be evaluated. It may be used by several
// goroutines at the same time.
type Program struct{ program celgo.Program }

// Evaluate evaluates the program and subtracts the cost from budget. If budget is nil, only
// the cost limit of one evaluation applies. The evaluation fails when ctx ends. Use
// errors.Is to compare an error with ErrBudget and the other kinds.
func (p *Program) Evaluate(ctx context.Context, vars Variables, budget *Budget) (ref.Val, error) {
	value, details, err := p.program.ContextEval(ctx, vars)
	if budget != nil {
		if details == nil || details.ActualCost() == nil {
			return nil, ErrUnknownCost
		}
		if !budget.pay(*details.ActualCost()) {
			return nil, ErrBudget
		}
	}
	if err != nil {
		return nil, classified(err)
	}
	return value, nil
}
