package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/keelson-dev/keelson/cel"
	"github.com/keelson-dev/keelson/structural"
)

// CheckOptions say what a schema is checked as.
type CheckOptions struct {
	// Path is that of openAPIV3Schema.
	Path *field.Path
	// Root says that the schema is that of a whole resource.
	Root bool
	// Flawed are the paths of nodes that errors were found in already. Rules of such
	// a node or one above are not compiled: what they would say does not help.
	Flawed []*field.Path
	// Previous are the schemas of all versions before an update, nil for a new
	// definition. Their expressions may use what was accepted when they were new.
	Previous []*structural.Schema
	// Unchanged says that the schema of this version is what it was. Then no
	// expression is too expensive by itself, but all together may be.
	Unchanged bool
}

// Check compiles the rules of a version's schema and estimates what they cost, and
// returns what is wrong with them and with what else they say.
func Check(s *structural.Schema, o CheckOptions) field.ErrorList {
	c := &inspection{options: o, stored: storedExpressions(o.Previous)}
	v, one := newView(s), uint64(1)
	c.texts(o.Path, v)
	for _, e := range c.errs {
		c.flawed = append(c.flawed, e.Field)
	}
	for _, path := range o.Flawed {
		c.flawed = append(c.flawed, path.String())
	}
	c.node(o.Path, place{schema: v, root: o.Root, often: &one})
	return append(c.errs, c.bill.errors(o.Path)...)
}

// An inspection goes through a schema.
type inspection struct {
	options CheckOptions
	stored  map[[2]string]bool // part and source of expressions accepted before
	flawed  []string
	errs    field.ErrorList
	bill    bill
}

// storedExpressions returns the expressions of schemas, by part and source.
func storedExpressions(schemas []*structural.Schema) map[[2]string]bool {
	out := map[[2]string]bool{}
	var visit func(*structural.Schema)
	visit = func(s *structural.Schema) {
		if s == nil {
			return
		}
		for _, r := range s.Rules {
			out[[2]string{rulePart, r.Rule}] = true
			out[[2]string{messagePart, r.MessageExpression}] = true
		}
		visit(s.Items)
		visit(s.AdditionalProperties)
		for _, p := range s.Properties {
			visit(p)
		}
	}
	for _, s := range schemas {
		visit(s)
	}
	return out
}

// A step leads from a node of a schema to one right below it.
type step struct {
	to   string // items, additionalProperties or properties
	name string // of the property
}

func (s step) path(p *field.Path) *field.Path {
	if p = p.Child(s.to); s.to == "properties" {
		p = p.Key(s.name)
	}
	return p
}

// correlates reports whether what the step leads to, from parent, can be told
// from one version of an object to the next.
func (s step) correlates(parent *structural.Schema) bool {
	switch s.to {
	case "items":
		return parent.ListType == "map"
	case "properties":
		return parent.MapType == "" || parent.MapType == "granular" || parent.MapType == "atomic"
	}
	return true
}

// typ returns the type of what the step leads to. That of a property is nil where
// rules of the node above do not see it; that of items or values is the one that the
// type of the node above has for its elements, if it has elements.
func (s step) typ(t *apiservercel.DeclType) (typ *apiservercel.DeclType, seen bool) {
	if s.to != "properties" {
		return t.ElemType, true
	}
	if name, ok := apiservercel.Escape(s.name); ok && t.Fields[name] != nil {
		return t.Fields[name].Type, true
	}
	return nil, false
}

// eachBelow calls f for the nodes right below v, in an order that is always the same.
func eachBelow(v *view, f func(step, *view)) {
	if a, ok := v.AdditionalProperties().(mapValues); ok && a.schema != nil {
		f(step{to: "additionalProperties"}, a.schema)
	}
	properties := v.Properties()
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		f(step{"properties", name}, properties[name].(*view))
	}
	if items, ok := v.Items().(*view); ok {
		f(step{to: "items"}, items)
	}
}

func (c *inspection) texts(path *field.Path, v *view) {
	eachBelow(v, func(s step, v *view) { c.texts(s.path(path), v) })
	c.errs = append(c.errs, CheckTexts(path, v.schema.Rules, v.schema)...)
}

// A place is one node with what the schemas above say of it.
type place struct {
	schema *view
	root   bool // of a resource
	often  cardinality
	// seen says that this node or one above has rules. Then typ is the node's type,
	// nil if it has none.
	seen bool
	typ  *apiservercel.DeclType
	// untyped is why there is no type.
	untyped error
	// uncorrelated is the first node above whose parts have no counterpart from before.
	uncorrelated *field.Path
}

func (c *inspection) node(path *field.Path, p place) {
	s := p.schema.schema
	if !p.seen && len(s.Rules) > 0 {
		p.seen = true
		p.declare()
	}
	eachBelow(p.schema, func(step step, child *view) {
		c.node(step.path(path), p.child(step, child, path))
	})
	if len(s.Rules) == 0 || c.isFlawed(path) {
		return
	}
	at := path.Child("x-kubernetes-validations")
	if p.typ == nil {
		c.add(field.InternalError(at, p.untyped))
		return
	}
	scope := newScope(p.typ)
	for i := range s.Rules {
		c.rule(at.Index(i), p, scope, &s.Rules[i])
	}
}

var (
	errNoType = errors.New("internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations")
	// errNoElements is said of the items or values of what is no list or map.
	errNoElements = errors.New("failed to convert to declType for CEL validation rules")
)

// declare gives the node the type that its schema says by itself.
func (p *place) declare() {
	if p.typ = common.SchemaDeclType(p.schema, p.root); p.typ == nil {
		p.untyped = errNoType
	}
}

// child returns the place that a step leads to. The path is that of p.
func (p place) child(step step, child *view, path *field.Path) place {
	out := place{
		schema:       child,
		root:         child.schema.EmbeddedResource,
		often:        below(p.often, p.schema.schema),
		seen:         p.seen,
		untyped:      p.untyped,
		uncorrelated: p.uncorrelated,
	}
	if p.typ != nil {
		typ, seen := step.typ(p.typ)
		switch out.typ = typ; {
		case !seen:
			out.declare()
		case typ == nil:
			out.untyped = errNoElements
		}
	}
	if out.uncorrelated == nil && !step.correlates(p.schema.schema) {
		out.uncorrelated = path
	}
	return out
}

// isFlawed reports whether an error was found in the node at path or below it.
func (c *inspection) isFlawed(path *field.Path) bool {
	for _, flaw := range c.flawed {
		rest, ok := strings.CutPrefix(flaw, path.String())
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

func (c *inspection) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

// rule checks one rule of a node.
func (c *inspection) rule(path *field.Path, p place, scope *scope, r *apiextensionsv1.ValidationRule) {
	origin := func(part, source string) cel.Origin {
		if c.stored[[2]string{part, source}] {
			return cel.Stored
		}
		return cel.New
	}
	program := scope.compile(r, p.schema.schema, origin, func(part string, e *cel.Expression) string {
		cost, err := e.MaxCost(sizes{p.typ})
		switch {
		case err != nil && part == messagePart:
			return "cost estimation failed for messageExpression: " + err.Error()
		case err != nil:
			return "cost estimation failed: " + err.Error()
		case part == messagePart:
			c.cost(path.Child(part), "estimated messageExpression cost", cost)
		default:
			c.cost(path.Child(part), "estimated rule cost", times(cost, often(p.often, p.typ)))
		}
		return ""
	})
	if program.problem != "" {
		c.add(field.Invalid(path.Child("rule"), shown(r), program.problem))
	}
	if program.messageProblem != "" {
		c.add(field.Invalid(path.Child("messageExpression"), shown(r), program.messageProblem))
	}
	switch {
	case program.usesOldSelf && p.uncorrelated != nil:
		c.add(field.Invalid(path.Child("rule"), r.Rule, fmt.Sprintf("oldSelf cannot be used on the uncorrelatable portion of the schema within %v", p.uncorrelated)))
	case !program.usesOldSelf && r.OptionalOldSelf != nil:
		c.add(field.Invalid(path.Child("optionalOldSelf"), *r.OptionalOldSelf, "may not be set if oldSelf is not used in rule"))
	}
}

// cost takes the cost of an expression into account.
func (c *inspection) cost(path *field.Path, what string, cost uint64) {
	if cost > expressionLimit && !c.options.Unchanged {
		c.add(field.Forbidden(path, overLimit(what, cost, expressionLimit)))
	}
	c.bill.add(path, cost)
}

// shown is a rule as errors show it: with the names of Go.
func shown(r *apiextensionsv1.ValidationRule) any {
	return struct {
		Rule, Message, MessageExpression string
		Reason                           *apiextensionsv1.FieldValueErrorReason
		FieldPath                        string
		OptionalOldSelf                  *bool
	}{r.Rule, r.Message, r.MessageExpression, r.Reason, r.FieldPath, r.OptionalOldSelf}
}
