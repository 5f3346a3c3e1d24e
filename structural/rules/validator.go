package rules

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/keelson-dev/keelson/cel"
	"github.com/keelson-dev/keelson/structural"
)

// Budget is what the rules of a definition may cost in one request.
const Budget = int64(cel.ObjectBudget)

// A Validator evaluates the rules of a version's schema. The rules of a node are
// compiled when the first value of it is validated, once, and are kept as long as the
// validator is. It may be used by several goroutines.
type Validator struct {
	root *node
}

// Compile returns the validator of a schema; root says that it is that of a whole
// resource. A schema without rules has none: nil, which finds everything valid.
func Compile(s *structural.Schema, root bool) *Validator {
	if !hasRules(s) {
		return nil
	}
	n := newNode(newView(s), root)
	if n == nil {
		return nil
	}
	return &Validator{root: n}
}

// hasRules reports whether a node of s has rules that values are judged by.
func hasRules(s *structural.Schema) bool {
	if s == nil || !exposed(s) {
		return false
	}
	if len(s.Rules) > 0 || hasRules(s.Items) || hasRules(s.AdditionalProperties) {
		return true
	}
	for _, p := range s.Properties {
		if hasRules(p) {
			return true
		}
	}
	return false
}

// A node is one of a schema, with the nodes below it that lead to rules.
type node struct {
	schema     *view
	root       bool // of a resource
	items      *node
	values     *node // of a map
	properties []property

	compiling sync.Once
	programs  []program
	// transitions says that a program uses oldSelf.
	transitions bool
}

// properties are ordered by name.
type property struct {
	name string
	*node
}

// newNode returns nil where there are no rules at or below v.
func newNode(v *view, root bool) *node {
	s := v.schema
	if !hasRules(s) {
		return nil
	}
	n := &node{schema: v, root: root}
	if hasRules(s.Items) {
		n.items = newNode(v.Items().(*view), s.Items.EmbeddedResource)
	}
	if hasRules(s.AdditionalProperties) {
		n.values = newNode(v.AdditionalProperties().Schema().(*view), s.AdditionalProperties.EmbeddedResource)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if p := s.Properties[name]; hasRules(p) {
			n.properties = append(n.properties, property{name, newNode(v.Properties()[name].(*view), p.EmbeddedResource)})
		}
	}
	return n
}

// compiled returns the programs of the node.
func (n *node) compiled() []program {
	n.compiling.Do(func() {
		rules := n.schema.schema.Rules
		if len(rules) == 0 {
			return
		}
		scope := newScope(common.SchemaDeclType(n.schema, n.root))
		stored := func(string, string) cel.Origin { return cel.Stored }
		costless := func(string, *cel.Expression) string { return "" }
		n.programs = make([]program, len(rules))
		for i := range rules {
			n.programs[i] = scope.compile(&rules[i], n.schema.schema, stored, costless)
			n.transitions = n.transitions || n.programs[i].usesOldSelf
		}
	})
	return n.programs
}

// A Result is what rules say of an object.
type Result struct {
	Errors field.ErrorList
	// Ratcheted are errors of values that an update leaves as they were: they do not
	// refuse it, but the client is warned of them.
	Ratcheted field.ErrorList
	// Remaining is what is left of the budget, negative if it was used up before all
	// rules were evaluated.
	Remaining int64
}

// Validate evaluates the rules for obj at path, within the budget: Budget for a whole
// request. Old is nil for a new object; otherwise rules compare with it, and errors of
// values that did not change are left out (KEP-4008), unless the rule looks at
// oldSelf. Rules do not see null. The end of ctx ends the evaluation with an error.
func (v *Validator) Validate(ctx context.Context, path *field.Path, obj, old any, budget int64) (errs field.ErrorList, remaining int64) {
	r := v.Evaluate(ctx, path, obj, old, budget)
	return r.Errors, r.Remaining
}

// Evaluate does what Validate does, and returns what to warn of as well.
func (v *Validator) Evaluate(ctx context.Context, path *field.Path, obj, old any, budget int64) Result {
	if v == nil || obj == nil {
		return Result{Remaining: budget}
	}
	e := &evaluation{ctx: ctx, budget: cel.Budget(budget)}
	var c *correlation
	if !isNil(old) {
		c = &correlation{schema: v.root.schema.schema, value: obj, old: old, known: true}
	}
	e.value(v.root, path, obj, old, c)
	e.Remaining = int64(e.budget)
	return e.Result
}
