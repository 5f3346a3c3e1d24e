package rules

import (
	"strings"

	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/keelson-dev/keelson/cel"
	"github.com/keelson-dev/keelson/structural"
)

// A program is a rule that is ready to be evaluated.
type program struct {
	rule *apiextensionsv1.ValidationRule

	// condition is nil if the rule is empty or does not compile; then problem says why.
	condition *cel.Program
	problem   string
	// usesOldSelf marks transition rules: they are evaluated only if there is an old value.
	usesOldSelf bool

	// message is nil without a messageExpression, or if that does not compile; then
	// messageProblem says why.
	message        *cel.Program
	messageProblem string

	// place is the rule's fieldPath as errors show it.
	place string
}

// optionalOldSelf reports whether oldSelf of a rule is an optional value.
func optionalOldSelf(r *apiextensionsv1.ValidationRule) bool {
	return r.OptionalOldSelf != nil && *r.OptionalOldSelf
}

// An observer is called with each expression of a rule that compiles, and with the part
// of the rule that it is. It may return a problem of its own.
type observer func(part string, e *cel.Expression) (problem string)

// The parts of a rule that are expressions.
const (
	rulePart    = "rule"
	messagePart = "messageExpression"
)

// compile makes the program of a rule of a schema's node. The origin of an expression
// says whether it was accepted before.
func (s *scope) compile(rule *apiextensionsv1.ValidationRule, schema *structural.Schema, origin origins, observe observer) program {
	p := program{rule: rule}
	if strings.TrimSpace(rule.Rule) == "" {
		return p
	}
	e, err := s.of(rule).Compile(rule.Rule, origin(rulePart, rule.Rule))
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
			p.place = path.String()
		}
	}
	if rule.MessageExpression != "" {
		p.message, p.messageProblem = s.compileMessage(rule, origin(messagePart, rule.MessageExpression), observe)
	}
	return p
}

func (s *scope) compileMessage(rule *apiextensionsv1.ValidationRule, origin cel.Origin, observe observer) (*cel.Program, string) {
	e, err := s.of(rule).Compile(rule.MessageExpression, origin)
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

// sizes are the largest sizes of what can be reached from a variable whose type is
// root, for estimates of cost.
type sizes struct{ root *apiservercel.DeclType }

// EstimateSize returns nil where the size is not known.
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

// EstimateCallCost leaves the costs of calls to the library.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
