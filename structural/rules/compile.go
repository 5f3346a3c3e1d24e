package rules

import (
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/keelson-dev/keelson/structural"
)

// A program is a rule that is ready to be evaluated.
type program struct {
	rule *apiextensionsv1.ValidationRule

	// condition is nil where the rule is empty or has a problem: why it does not
	// compile.
	condition cel.Program
	problem   string
	// usesOldSelf tells transition rules: they need a value from before.
	usesOldSelf bool

	// message is nil without a messageExpression, or where it has a problem.
	message        cel.Program
	messageProblem string

	// place is the rule's fieldPath in the form of errors.
	place string
}

// optionalOldSelf reports whether oldSelf of a rule is an optional value.
func optionalOldSelf(r *apiextensionsv1.ValidationRule) bool {
	return r.OptionalOldSelf != nil && *r.OptionalOldSelf
}

// An expression is one that has been checked, with the environment it was checked in.
type expression struct {
	env *cel.Env
	ast *cel.Ast
}

// check parses an expression of a scope and checks its types. The problem says why
// that cannot be done.
func (s *scope) check(source string, stored, optional bool) (e expression, problem string) {
	env, err := s.env(stored, optional)
	if err != nil {
		return expression{}, "compilation failed: " + err.Error()
	}
	ast, issues := env.Compile(source)
	if issues != nil {
		return expression{}, "compilation failed: " + issues.String()
	}
	return expression{env, ast}, ""
}

func (e expression) uses(variable string) bool {
	for _, ref := range e.ast.NativeRep().ReferenceMap() {
		if ref.Name == variable {
			return true
		}
	}
	return false
}

// estimate returns the most an expression can cost, by the sizes of what it sees.
func (e expression) estimate(sizes sizes) (uint64, error) {
	cost, err := e.env.EstimateCost(e.ast, &library.CostEstimator{SizeEstimator: sizes})
	return cost.Max, err
}

// An observer is told the expressions of a rule once they are checked, with what part
// of the rule they are.
type observer func(part string, e expression) (problem string)

// The parts of a rule that are expressions.
const (
	rulePart    = "rule"
	messagePart = "messageExpression"
)

// compile makes the program of a rule of a schema's node. Expressions that stored
// names were accepted before.
func (s *scope) compile(rule *apiextensionsv1.ValidationRule, schema *structural.Schema, stored func(part, source string) bool, observe observer) program {
	p := program{rule: rule}
	if strings.TrimSpace(rule.Rule) == "" {
		return p
	}
	optional := optionalOldSelf(rule)
	e, problem := s.check(rule.Rule, stored(rulePart, rule.Rule), optional)
	if problem == "" && e.ast.OutputType() != cel.BoolType {
		problem = "cel expression must evaluate to a bool"
	}
	if p.problem = problem; problem != "" {
		return p
	}
	p.usesOldSelf = e.uses(oldSelf)
	var err error
	if p.condition, err = plan(e.ast); err != nil {
		p.problem = "program instantiation failed: " + err.Error()
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
		p.message, p.messageProblem = s.compileMessage(rule, stored(messagePart, rule.MessageExpression), observe)
	}
	return p
}

func (s *scope) compileMessage(rule *apiextensionsv1.ValidationRule, stored bool, observe observer) (cel.Program, string) {
	e, problem := s.check(rule.MessageExpression, stored, optionalOldSelf(rule))
	if problem != "" {
		return nil, "messageExpression " + problem
	}
	if e.ast.OutputType() != cel.StringType {
		return nil, "messageExpression must evaluate to a string"
	}
	message, err := plan(e.ast)
	if err != nil {
		return nil, "messageExpression instantiation failed: " + err.Error()
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
