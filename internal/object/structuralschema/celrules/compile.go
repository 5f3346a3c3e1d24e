package celrules

import (
	"strings"

	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
	"github.com/keelson-dev/keelson/internal/object/structuralschema"
)

// program is a compiled rule.
type program struct {
	rule *apiextensionsv1.ValidationRule

	// condition is the compiled rule expression. It is nil if the rule is empty or does not compile; problem then
	// has the error.
	condition *cel.Program
	problem   string
	// usesOldSelf is true for transition rules, which are evaluated only if there is an old value.
	usesOldSelf bool

	// message is the compiled messageExpression. It is nil if there is none or it does not compile; messageProblem
	// then has the error.
	message        *cel.Program
	messageProblem string

	// fieldPath is the fieldPath of the rule as errors write it.
	fieldPath string
}

// optionalOldSelf reports whether oldSelf is an optional value in a rule.
func optionalOldSelf(r *apiextensionsv1.ValidationRule) bool {
	return r.OptionalOldSelf != nil && *r.OptionalOldSelf
}

// observer is called with each expression of a rule that compiles, and its part. It may return a problem, with
// which the expression is rejected.
type observer func(part string, e *cel.Expression) (problem string)

// The parts of a rule that are expressions.
const (
	rulePart    = "rule"
	messagePart = "messageExpression"
)

// compile compiles a rule of the node with this schema. origin reports whether an expression was already accepted
// in a stored definition.
func (s *scope) compile(
	rule *apiextensionsv1.ValidationRule, schema *structuralschema.Schema, origin origins, observe observer,
) program {
	p := program{rule: rule}
	if strings.TrimSpace(rule.Rule) == "" {
		return p
	}
	e, err := s.forRule(rule).Compile(rule.Rule, origin(rulePart, rule.Rule))
	switch {
	case err != nil:
		p.problem = err.Error()
		return p
	case e.Type() != types.BoolType:
		p.problem = "cel expression must evaluate to a bool"
		return p
	}
	p.usesOldSelf = e.Uses(oldSelf)
	if p.condition, err = e.Program(); err != nil {
		p.problem = "program " + err.Error()
		return p
	}
	if p.problem = observe(rulePart, e); p.problem != "" {
		p.condition = nil
		return p
	}
	if rule.FieldPath != "" {
		if path, _, err := FieldPath(schema, rule.FieldPath, true); err == nil {
			p.fieldPath = path.String()
		}
	}
	if rule.MessageExpression != "" {
		p.message, p.messageProblem = s.compileMessage(rule, origin(messagePart, rule.MessageExpression), observe)
	}
	return p
}

func (s *scope) compileMessage(
	rule *apiextensionsv1.ValidationRule, origin cel.Origin, observe observer,
) (*cel.Program, string) {
	e, err := s.forRule(rule).Compile(rule.MessageExpression, origin)
	if err != nil {
		return nil, "messageExpression " + err.Error()
	}
	if e.Type() != types.StringType {
		return nil, "messageExpression must evaluate to a string"
	}
	message, err := e.Program()
	if err != nil {
		return nil, "messageExpression " + err.Error()
	}
	if problem := observe(messagePart, e); problem != "" {
		return nil, problem
	}
	return message, ""
}

// sizes implements the size estimates for costs. root is the type of the variables; the estimates are the maximal
// sizes that their schema allows.
type sizes struct{ root *apiservercel.DeclType }

// EstimateSize returns nil if the size is not known.
func (s sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	path := element.Path()
	if len(path) == 0 {
		return nil
	}
	typ := s.root
	for _, step := range path[1:] {
		switch step {
		case "@items", "@values":
			typ = typ.ElemType
		case "@keys":
			typ = typ.KeyType
		default:
			f := typ.Fields[step]
			if f == nil {
				return nil
			}
			typ = f.Type
		}
		if typ == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Max: uint64(typ.MaxElements)}
}

// EstimateCallCost returns nil: the library estimates the costs of calls.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
