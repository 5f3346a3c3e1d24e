package celrules

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

	"github.com/keelson-dev/keelson/internal/machinery/cel"
	"github.com/keelson-dev/keelson/internal/object/structuralschema"
)

// CheckOptions are the options of Check.
type CheckOptions struct {
	// Path is the path of openAPIV3Schema in the definition, for errors.
	Path *field.Path
	// Root is true for the schema of a resource.
	Root bool
	// Flawed are the paths of nodes with other errors. The rules of such a node and of the nodes above it are not
	// compiled, because their errors would only follow from those.
	Flawed []*field.Path
	// Previous are the schemas of all versions before an update, nil for a new definition. Their expressions are
	// compiled with the language features of stored expressions.
	Previous []*structuralschema.Schema
	// Unchanged is true if an update does not change the schema of this version. Then the limit for one expression
	// is not checked, but the limit for all expressions is.
	Unchanged bool
}

// Check compiles the rules of the schema of a version and estimates their costs. It returns the errors in all
// fields of the rules.
func Check(s *structuralschema.Schema, o CheckOptions) field.ErrorList {
	c := &ruleChecker{options: o, stored: storedExpressions(o.Previous)}
	v, once := newView(s), uint64(1)
	c.texts(o.Path, v)
	for _, e := range c.errs {
		c.flawed = append(c.flawed, e.Field)
	}
	for _, path := range o.Flawed {
		c.flawed = append(c.flawed, path.String())
	}
	c.node(o.Path, location{schema: v, root: o.Root, often: &once})
	return append(c.errs, c.totalCost.errors(o.Path)...)
}

// ruleChecker is one call of Check.
type ruleChecker struct {
	options   CheckOptions
	stored    map[[2]string]bool // part and source of the expressions of Previous
	flawed    []string
	errs      field.ErrorList
	totalCost totalCost
}

// storedExpressions returns the expressions of schemas, by part and source.
func storedExpressions(schemas []*structuralschema.Schema) map[[2]string]bool {
	out := map[[2]string]bool{}
	var visit func(*structuralschema.Schema)
	visit = func(s *structuralschema.Schema) {
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

// step leads from a node of a schema to one of its children.
type step struct {
	to   string // items, additionalProperties or properties
	name string // name of the property
}

func (s step) path(p *field.Path) *field.Path {
	if p = p.Child(s.to); s.to == "properties" {
		p = p.Key(s.name)
	}
	return p
}

// correlates reports whether the child that the step leads to can be matched with its old value in an update.
func (s step) correlates(parent *structuralschema.Schema) bool {
	switch s.to {
	case "items":
		return parent.ListType == "map"
	case "properties":
		return parent.MapType == "" || parent.MapType == "granular" || parent.MapType == "atomic"
	}
	return true
}

// typ returns the type of the child that the step leads to, given the type t of the parent. For a property, seen is
// false if rules of the parent cannot access it. For items and values of maps, the result is the element type of t,
// nil if t has none.
func (s step) typ(t *apiservercel.DeclType) (typ *apiservercel.DeclType, seen bool) {
	if s.to != "properties" {
		return t.ElemType, true
	}
	if name, ok := apiservercel.Escape(s.name); ok && t.Fields[name] != nil {
		return t.Fields[name].Type, true
	}
	return nil, false
}

// eachBelow calls f for each child of v, in a fixed order.
func eachBelow(v *schemaView, f func(step, *schemaView)) {
	if a, ok := v.AdditionalProperties().(mapValues); ok && a.schema != nil {
		f(step{to: "additionalProperties"}, a.schema)
	}
	properties := v.Properties()
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		f(step{"properties", name}, properties[name].(*schemaView))
	}
	if items, ok := v.Items().(*schemaView); ok {
		f(step{to: "items"}, items)
	}
}

func (c *ruleChecker) texts(path *field.Path, v *schemaView) {
	eachBelow(v, func(s step, v *schemaView) { c.texts(s.path(path), v) })
	c.errs = append(c.errs, CheckTexts(path, v.schema.Rules, v.schema)...)
}

// location is one node with what the schemas above it define for it.
type location struct {
	schema *schemaView
	root   bool // the node is a whole resource
	often  cardinality
	// seen is true if this node or a node above has rules. typ is then the type of the node, nil if it has none.
	seen bool
	typ  *apiservercel.DeclType
	// untyped is the error that explains a nil typ.
	untyped error
	// uncorrelated is the path of the first node above whose children cannot be matched with old values, or nil.
	uncorrelated *field.Path
}

func (c *ruleChecker) node(path *field.Path, p location) {
	s := p.schema.schema
	if !p.seen && len(s.Rules) > 0 {
		p.seen = true
		p.deriveType()
	}
	eachBelow(p.schema, func(step step, child *schemaView) {
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
	errNoType = errors.New(
		"internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations",
	)
	// errNoElements is the error for items or values below a type that has no elements.
	errNoElements = errors.New("failed to convert to declType for CEL validation rules")
)

// deriveType sets typ from the schema of the node alone.
func (l *location) deriveType() {
	if l.typ = common.SchemaDeclType(l.schema, l.root); l.typ == nil {
		l.untyped = errNoType
	}
}

// child returns the location that a step leads to. path is the path of l.
func (l location) child(step step, child *schemaView, path *field.Path) location {
	out := location{
		schema:       child,
		root:         child.schema.EmbeddedResource,
		often:        below(l.often, l.schema.schema),
		seen:         l.seen,
		untyped:      l.untyped,
		uncorrelated: l.uncorrelated,
	}
	if l.typ != nil {
		typ, seen := step.typ(l.typ)
		switch out.typ = typ; {
		case !seen:
			out.deriveType()
		case typ == nil:
			out.untyped = errNoElements
		}
	}
	if out.uncorrelated == nil && !step.correlates(l.schema.schema) {
		out.uncorrelated = path
	}
	return out
}

// isFlawed reports whether an error was found in the node at path or below it.
func (c *ruleChecker) isFlawed(path *field.Path) bool {
	for _, flaw := range c.flawed {
		rest, ok := strings.CutPrefix(flaw, path.String())
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

func (c *ruleChecker) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

// rule checks one rule of a node.
func (c *ruleChecker) rule(path *field.Path, p location, scope *scope, r *apiextensionsv1.ValidationRule) {
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
		c.add(field.Invalid(path.Child("rule"), ruleValue(r), program.problem))
	}
	if program.messageProblem != "" {
		c.add(field.Invalid(path.Child("messageExpression"), ruleValue(r), program.messageProblem))
	}
	switch {
	case program.usesOldSelf && p.uncorrelated != nil:
		c.add(
			field.Invalid(path.Child("rule"), r.Rule, fmt.Sprintf("oldSelf cannot be used on the uncorrelatable portion of the schema within %v", p.uncorrelated)),
		)
	case !program.usesOldSelf && r.OptionalOldSelf != nil:
		c.add(
			field.Invalid(path.Child("optionalOldSelf"), *r.OptionalOldSelf, "may not be set if oldSelf is not used in rule"),
		)
	}
}

// cost checks the cost of one expression and adds it to the total.
func (c *ruleChecker) cost(path *field.Path, what string, cost uint64) {
	if cost > expressionLimit && !c.options.Unchanged {
		c.add(field.Forbidden(path, overLimit(what, cost, expressionLimit)))
	}
	c.totalCost.add(path, cost)
}

// ruleValue returns a rule as the value of errors, with the Go names of its fields, as kube-apiserver does.
func ruleValue(r *apiextensionsv1.ValidationRule) any {
	return struct {
		Rule, Message, MessageExpression string
		Reason                           *apiextensionsv1.FieldValueErrorReason
		FieldPath                        string
		OptionalOldSelf                  *bool
	}{r.Rule, r.Message, r.MessageExpression, r.Reason, r.FieldPath, r.OptionalOldSelf}
}
