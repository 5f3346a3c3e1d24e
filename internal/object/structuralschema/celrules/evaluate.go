package celrules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
)

// evaluation is the evaluation of all rules for one object. Its methods return false when no more rules may be
// evaluated, because the budget is used up or a limit is exceeded.
type evaluation struct {
	ctx    context.Context
	budget cel.Budget
	Result // without Remaining
}

// value evaluates the rules for a value and for the values in it.
func (e *evaluation) value(n *node, path *field.Path, value, old any, c *correlation) bool {
	if value == nil {
		return true
	}
	if !e.rules(n, path, value, old, c) {
		return false
	}
	switch value := value.(type) {
	case []any:
		old, _ := old.([]any)
		return e.list(n, path, value, old, c)
	case map[string]any:
		old, _ := old.(map[string]any)
		return e.object(n, path, value, old, c)
	}
	return true
}

func (e *evaluation) list(n *node, path *field.Path, value, old []any, c *correlation) bool {
	if n.items == nil {
		return true
	}
	counterparts := n.schema.schema.Keyed(old)
	for i, item := range value {
		before := counterparts.Find(item)
		if !e.value(n.items, path.Index(i), item, before, c.item(item, before)) {
			return false
		}
	}
	return true
}

func (e *evaluation) object(n *node, path *field.Path, value, old map[string]any, c *correlation) bool {
	if n.values != nil {
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if !e.value(n.values, path.Key(name), value[name], old[name], c.member(name)) {
				return false
			}
		}
	}
	for _, p := range n.properties {
		v, ok := value[p.name]
		if ok && !e.value(p.node, path.Child(p.name), v, old[p.name], c.member(p.name)) {
			return false
		}
	}
	return true
}

// rules evaluates the rules of one node.
func (e *evaluation) rules(n *node, path *field.Path, value, old any, c *correlation) bool {
	if len(n.schema.schema.Rules) == 0 {
		return true
	}
	programs := n.compiled()
	if e.budget <= 0 {
		return e.exhausted(n, path)
	}
	plain, optional := n.variables(value, old)
	for i := range programs {
		p := &programs[i]
		if p.problem != "" {
			e.invalid(n, path, "rule compile error: "+p.problem)
			continue
		}
		if p.condition == nil {
			continue
		}
		vars := plain
		if optionalOldSelf(p.rule) {
			vars = optional
		} else if p.usesOldSelf && plain.old == nil {
			continue
		}
		if !e.rule(n, p, path, value, vars, c) {
			return false
		}
	}
	return true
}

// rule evaluates one rule.
func (e *evaluation) rule(n *node, p *program, path *field.Path, value any, vars *variables, c *correlation) bool {
	result, err := p.condition.Evaluate(e.ctx, vars, &e.budget)
	switch {
	case errors.Is(err, cel.ErrUnknownCost):
		e.Errors = append(e.Errors, field.InternalError(path, fmt.Errorf(
			"runtime cost could not be calculated for validation rule: %v, no further validation rules will be run", name(p.rule))))
		return e.stop()
	case errors.Is(err, cel.ErrBudget):
		return e.exhausted(n, path)
	case errors.Is(err, cel.ErrNoOverload):
		e.invalid(
			n, path,
			fmt.Sprintf("'%v': call arguments did not match a supported operator, function or macro signature for rule: %v", err, name(p.rule)),
		)
	case errors.Is(err, cel.ErrCallLimit):
		e.invalid(
			n, path,
			fmt.Sprintf("'%v': no further validation rules will be run due to call cost exceeds limit for rule: %v", err, name(p.rule)),
		)
		return e.stop()
	case err != nil:
		e.invalid(n, path, fmt.Sprintf("%v evaluating rule: %v", err, name(p.rule)))
	case result != types.True:
		return e.failed(n, p, path, value, vars, c)
	}
	return true
}

// failed adds the error of a rule that is not true.
func (e *evaluation) failed(n *node, p *program, path *field.Path, value any, vars *variables, c *correlation) bool {
	if p.fieldPath != "" {
		path = path.Child(p.fieldPath)
	}
	add := func(err *field.Error) {
		if !p.usesOldSelf && c.unchanged() {
			e.Ratcheted = append(e.Ratcheted, err)
		} else {
			e.Errors = append(e.Errors, err)
		}
	}
	detail := ""
	if p.message != nil {
		message, err := e.message(p, vars)
		switch {
		case errors.Is(err, errNoCost):
			add(field.InternalError(path, err))
			return e.stop()
		case errors.Is(err, errStop):
			add(field.Invalid(path, n.schema.Type(), err.Error()))
			return e.stop()
		}
		detail = message
	}
	if detail == "" {
		detail = defaultMessage(p.rule)
	}
	if n.schema.Type() == "object" || n.schema.Type() == "array" {
		value = field.OmitValueType{}
	}
	add(withReason(path, value, detail, p.rule.Reason))
	return true
}

// withReason returns the error of a failed rule with this reason.
func withReason(
	path *field.Path, value any, detail string, reason *apiextensionsv1.FieldValueErrorReason,
) *field.Error {
	if reason != nil {
		switch *reason {
		case apiextensionsv1.FieldValueForbidden:
			return field.Forbidden(path, detail)
		case apiextensionsv1.FieldValueRequired:
			return field.Required(path, detail)
		case apiextensionsv1.FieldValueDuplicate:
			return field.Duplicate(path, value)
		}
	}
	return field.Invalid(path, value, detail)
}

// messageError is the error of a messageExpression that ends the evaluation of all rules.
type messageError struct {
	kind error
	text string
}

var (
	errNoCost = errors.New("no cost")
	errStop   = errors.New("over a limit")
)

func (e *messageError) Error() string { return e.text }
func (e *messageError) Unwrap() error { return e.kind }

// message evaluates the messageExpression of a rule. It returns "" if the result is not a usable message, and an
// error if no more rules may be evaluated.
func (e *evaluation) message(p *program, vars *variables) (string, error) {
	result, err := p.message.Evaluate(e.ctx, vars, &e.budget)
	switch {
	case errors.Is(err, cel.ErrUnknownCost):
		return "", &messageError{
			errNoCost, fmt.Sprintf("runtime cost could not be calculated for messageExpression: %q", p.rule.MessageExpression),
		}
	case errors.Is(err, cel.ErrBudget):
		return "", &messageError{
			errStop,
			"messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run",
		}
	case errors.Is(err, cel.ErrCallLimit):
		return "", &messageError{
			errStop,
			fmt.Sprintf("no further validation rules will be run due to call cost exceeds limit for messageExpression: %q", p.rule.MessageExpression),
		}
	case err != nil:
		return "", nil
	}
	text, _ := result.Value().(string)
	text = strings.TrimSpace(text)
	if len(text) > celconfig.MaxEvaluatedMessageExpressionSizeBytes || strings.Contains(text, "\n") {
		return "", nil
	}
	return text, nil
}

func (e *evaluation) stop() bool {
	e.budget.Exhaust()
	return false
}

func (e *evaluation) exhausted(n *node, path *field.Path) bool {
	e.invalid(n, path, "validation failed due to running out of cost budget, no further validation rules will be run")
	return e.stop()
}

// invalid adds an error whose value is the type of the schema, because the error is not about the value.
func (e *evaluation) invalid(n *node, path *field.Path, detail string) {
	e.Errors = append(e.Errors, field.Invalid(path, n.schema.Type(), detail))
}

// name returns the text by which errors name a rule.
func name(r *apiextensionsv1.ValidationRule) string {
	if r.Message != "" {
		return strings.TrimSpace(r.Message)
	}
	return strings.TrimSpace(r.Rule)
}

func defaultMessage(r *apiextensionsv1.ValidationRule) string {
	if r.Message != "" {
		return strings.TrimSpace(r.Message)
	}
	return "failed rule: " + strings.TrimSpace(r.Rule)
}

// variables has the values of the variables of an expression.
type variables struct {
	self ref.Val
	old  ref.Val // nil if there is no old value
}

// variables returns the variables for a value, and those for rules with optionalOldSelf.
func (n *node) variables(value, old any) (plain, optional *variables) {
	schema := n.schema
	if n.root {
		schema = schema.ofResource()
	}
	plain = &variables{self: common.UnstructuredToVal(value, schema)}
	if !n.transitions {
		return plain, plain
	}
	optional = &variables{self: plain.self, old: types.OptionalNone}
	if !isNil(old) {
		plain.old = common.UnstructuredToVal(old, schema)
		optional.old = types.OptionalOf(plain.old)
	}
	return plain, optional
}

func isNil(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return v == nil
	case []any:
		return v == nil
	}
	return false
}

// ResolveName returns the value of a variable. It implements cel.Variables.
func (v *variables) ResolveName(name string) (any, bool) {
	switch {
	case name == self:
		return v.self, true
	case name == oldSelf && v.old != nil:
		return v.old, true
	}
	return nil, false
}

// Parent returns nil: there are no other variables.
func (v *variables) Parent() cel.Variables { return nil }
