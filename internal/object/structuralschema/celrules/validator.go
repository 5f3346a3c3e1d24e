package celrules

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
	"github.com/keelson-dev/keelson/internal/object/structuralschema"
)

// Budget is the cost limit of all rules of a definition in one request.
const Budget = int64(cel.ObjectBudget)

// Validator evaluates the rules of the schema of a version. The rules of a node are compiled once, when the first
// value of the node is validated. It may be used by several goroutines.
type Validator struct {
	root *node
}

// Compile returns the validator of a schema. root is true for the schema of a resource. For a schema without rules it
// returns nil; a nil Validator accepts every value.
func Compile(s *structuralschema.Schema, root bool) *Validator {
	if !hasRules(s) {
		return nil
	}
	n := newNode(newView(s), root)
	if n == nil {
		return nil
	}
	return &Validator{root: n}
}

// hasRules reports whether s or a node below it has rules that can be evaluated.
func hasRules(s *structuralschema.Schema) bool {
	if s == nil || !visible(s) {
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

// node is a node of the schema with the children that have rules at or below them.
type node struct {
	schema     *schemaView
	root       bool // the node is a whole resource
	items      *node
	values     *node // the values of a map
	properties []property

	compileOnce sync.Once
	programs    []program
	// transitions is true if a program uses oldSelf.
	transitions bool
}

// property is a property with its node. Properties are ordered by name.
type property struct {
	name string
	*node
}

// newNode returns nil if there are no rules at or below v.
func newNode(v *schemaView, root bool) *node {
	s := v.schema
	if !hasRules(s) {
		return nil
	}
	n := &node{schema: v, root: root}
	if hasRules(s.Items) {
		n.items = newNode(v.Items().(*schemaView), s.Items.EmbeddedResource)
	}
	if hasRules(s.AdditionalProperties) {
		n.values = newNode(v.AdditionalProperties().Schema().(*schemaView), s.AdditionalProperties.EmbeddedResource)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if p := s.Properties[name]; hasRules(p) {
			n.properties = append(n.properties, property{name, newNode(v.Properties()[name].(*schemaView), p.EmbeddedResource)})
		}
	}
	return n
}

// compiled returns the programs of the rules of the node.
func (n *node) compiled() []program {
	n.compileOnce.Do(func() {
		rules := n.schema.schema.Rules
		if len(rules) == 0 {
			return
		}
		scope := newScope(common.SchemaDeclType(n.schema, n.root))
		stored := func(string, string) cel.Origin { return cel.Stored }
		noCheck := func(string, *cel.Expression) string { return "" }
		n.programs = make([]program, len(rules))
		for i := range rules {
			n.programs[i] = scope.compile(&rules[i], n.schema.schema, stored, noCheck)
			n.transitions = n.transitions || n.programs[i].usesOldSelf
		}
	})
	return n.programs
}

// Result is the result of the rules for an object.
type Result struct {
	Errors field.ErrorList
	// Ratcheted are the errors of values that an update does not change. They do not reject the update, but the
	// client gets a warning for each.
	Ratcheted field.ErrorList
	// Remaining is the remaining budget, negative if it was used up before all rules were evaluated.
	Remaining int64
}

// Validate evaluates the rules for obj at path, within the budget, which is Budget for a whole request. old is nil
// for a new object. In an update, errors of values that did not change are left out (KEP-4008), unless the rule
// uses oldSelf. Null values are skipped. If ctx ends, Validate returns an error.
func (v *Validator) Validate(
	ctx context.Context, path *field.Path, obj, old any, budget int64,
) (errs field.ErrorList, remaining int64) {
	r := v.Evaluate(ctx, path, obj, old, budget)
	return r.Errors, r.Remaining
}

// Evaluate does what Validate does, and also returns the errors that become warnings.
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
