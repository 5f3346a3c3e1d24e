package structuralschema

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// Validate returns the errors of a value: types and the conditions in Values. It does not check the uniqueness in
// lists, embedded resources or CEL rules.
//
// path is the path of the value, nil for a whole object. The field of an error begins with path, but its message
// names the field relative to value. Errors of a combinator as a whole have path as their field. No error is
// returned twice; errors of sibling fields are sorted by name.
func (s *Schema) Validate(path *field.Path, value any) field.ErrorList {
	return s.ValidateUpdate(path, value, nil)
}

// ValidateUpdate returns the errors of Validate, without those of values that did not change since old (ratcheting,
// KEP-4008). So an object that became invalid because its definition changed can still be updated elsewhere. Items
// of a list are matched with old items only if the list is of type map. A nil old is a create.
func (s *Schema) ValidateUpdate(path *field.Path, value, old any) field.ErrorList {
	if s == nil {
		return nil
	}
	var v checks
	v.base = path
	v.path = v.pathBuffer[:0]
	if old == nil {
		v.schema(s, value, before{})
		return unique(v.errs)
	}
	v.quiet = true // most values are valid; then old need not be compared
	v.schema(s, value, before{})
	if v.failed == 0 {
		return nil
	}
	v.failed, v.quiet = 0, false
	v.schema(s, value, before{value: old, known: true})
	return unique(v.errs)
}

// before is the old value of a field, if known is true.
type before struct {
	value any
	known bool
}

// checks is a walk over a value.
//
// If a schema has alternatives (anyOf, oneOf) and a value satisfies none, kube-apiserver
// (the validator of kube-openapi) reports the errors of the alternative with the most
// checks passed. Each method that checks therefore returns how many checks passed, counted
// as kube-openapi does: a check counts by itself, and once more with the group of checks
// that it belongs to. Alternatives are first checked without making errors.
type checks struct {
	base       *field.Path
	path       []step
	pathBuffer [12]step
	// failed counts errors, quiet or not.
	failed int
	// quiet means that errors are only counted.
	quiet bool
	errs  field.ErrorList
}

// step is one step of a path.
type step struct {
	name  string
	index int
	kind  stepKind
}

type stepKind uint8

const (
	propertyStep stepKind = iota
	dottedStep            // a key of a map or a required field: written ".name" even at the root
	indexStep
)

func (ch *checks) enter(name string, kind stepKind) {
	ch.path = append(ch.path, step{name: name, kind: kind})
}

func (ch *checks) enterIndex(i int) {
	ch.path = append(ch.path, step{index: i, kind: indexStep})
}

func (ch *checks) leave() { ch.path = ch.path[:len(ch.path)-1] }

// schema checks x. It returns how many checks passed.
func (ch *checks) schema(s *Schema, x any, old before) int {
	failed, errs := ch.failed, len(ch.errs)
	var passed int
	switch x := x.(type) {
	case nil:
		passed = ch.null(s.kinds, s.Nullable, s.Values)
	case map[string]any:
		passed = ch.head(x, objectKind, s.kinds, s.Values) + ch.object(s, x, old)
	case []any:
		passed = ch.head(x, arrayKind, s.kinds, s.Values) + ch.array(s, x, old)
	default:
		passed = ch.scalar(x, s.kinds, s.Values)
	}
	if ch.failed > failed && old.known && s.Unchanged(x, old.value) {
		ch.failed, ch.errs = failed, ch.errs[:errs]
	}
	return passed
}

// condition checks x by a condition of a combinator. It returns how many checks passed.
func (ch *checks) condition(c *Condition, x any) int {
	switch x := x.(type) {
	case nil:
		return ch.null(c.kinds, false, &c.Values)
	case map[string]any:
		passed := ch.head(x, objectKind, c.kinds, &c.Values)
		ch.members(&c.Values, x)
		var found memberErrors
		for name, value := range x {
			first, sub := len(ch.errs), c.Properties[name]
			if sub != nil {
				ch.enter(name, propertyStep)
				passed += ch.condition(sub, value)
				ch.leave()
			} else if c.NoProperties {
				ch.forbidden(name)
			}
			ch.collect(&found, first, name, sub != nil)
		}
		ch.errs = found.appendTo(ch.errs)
		ch.required(&c.Values, x)
		return passed + 1
	case []any:
		passed := ch.head(x, arrayKind, c.kinds, &c.Values)
		if c.Items != nil {
			for i, value := range x {
				ch.enterIndex(i)
				passed += ch.condition(c.Items, value)
				ch.leave()
			}
		}
		return passed + ch.items(&c.Values, x)
	default:
		return ch.scalar(x, c.kinds, &c.Values)
	}
}

// null checks the value null.
func (ch *checks) null(allowed kind, nullable bool, values *Values) int {
	passed := 1
	if allowed == unknownKind && !nullable {
		ch.wrongType(values.unknown, "null")
		passed = 0
	} else if allowed != 0 && !nullable {
		ch.wrongType(allowed.String(), "null")
		passed = 0
	}
	if values != nil {
		ch.enum(values, nil)
	}
	return passed
}

// head checks the type, the combinators and the enum of an object or list.
func (ch *checks) head(x any, is, allowed kind, values *Values) int {
	passed := ch.checkType(x, is, allowed, values)
	if values != nil {
		passed += ch.combinators(values, x)
		ch.enum(values, x)
	}
	return passed + 4 // the combinators twice, the enum, the whole
}

func (ch *checks) scalar(x any, allowed kind, values *Values) int {
	is, passed := kindOf(x), 0
	if values == nil {
		passed = ch.checkType(x, is, allowed, nil) + 4
		switch is {
		case stringKind:
			return passed + 1
		case integerKind, numberKind:
			return passed + 2 + ch.inRange(x, allowed, "")
		}
		return passed
	}
	passed = ch.checkType(x, is, allowed, values) + ch.combinators(values, x)
	switch is {
	case stringKind:
		passed += ch.text(values, x.(string))
	case integerKind, numberKind:
		passed += ch.numeric(values, x, allowed)
	}
	ch.enum(values, x)
	return passed + 4
}

// object checks the fields of an object.
func (ch *checks) object(s *Schema, x map[string]any, old before) int {
	passed := 1 // the group of checks of the object
	if s.Values != nil {
		ch.members(s.Values, x)
	}
	var fields map[string]any
	if old.known {
		fields, _ = old.value.(map[string]any)
	}
	var found memberErrors
	for name, value := range x {
		sub, kind, first := s.Properties[name], propertyStep, len(ch.errs)
		if sub == nil {
			if sub = s.AdditionalProperties; sub == nil {
				if s.NoProperties {
					ch.forbidden(name)
					ch.collect(&found, first, name, false)
				}
				continue
			}
			kind = dottedStep
		}
		var oldValue before
		// Conversion changes apiVersion, so these two fields never count as unchanged.
		if fields != nil && !(len(ch.path) == 0 && (name == "kind" || name == "apiVersion")) {
			oldValue.value, oldValue.known = fields[name]
		}
		ch.enter(name, kind)
		passed += ch.schema(sub, value, oldValue)
		ch.leave()
		ch.collect(&found, first, name, kind == propertyStep)
	}
	ch.errs = found.appendTo(ch.errs)
	if s.Values != nil {
		ch.required(s.Values, x)
	}
	return passed
}

// array checks the items of an array.
func (ch *checks) array(s *Schema, x []any, old before) int {
	passed := 0
	if s.Items != nil {
		var oldItems *Keyed
		if list, ok := old.value.([]any); ok && old.known {
			oldItems = s.Keyed(list)
		}
		for i, value := range x {
			var oldValue before
			if oldItems != nil {
				oldValue.value = oldItems.Find(value)
				oldValue.known = oldValue.value != nil
			}
			ch.enterIndex(i)
			passed += ch.schema(s.Items, value, oldValue)
			ch.leave()
		}
	}
	if s.Values == nil {
		return passed + 2
	}
	return passed + ch.items(s.Values, x)
}

// members checks the number of fields.
func (ch *checks) members(values *Values, x map[string]any) {
	n := int64(len(x))
	if min := values.MinProperties; min != nil && n < *min {
		ch.invalid(n, "should have at least %d properties", *min)
	}
	if max := values.MaxProperties; max != nil && n > *max {
		if ch.fails() {
			ch.add(field.TooMany(ch.field(), int(n), int(*max)))
		}
	}
}

// forbidden adds the error of a field that "additionalProperties: false" forbids.
func (ch *checks) forbidden(name string) {
	if ch.fails() {
		ch.add(field.Invalid(ch.field(), name, ch.pathText()+"."+name+" in body is a forbidden property"))
	}
}

// required checks that the required fields are present.
func (ch *checks) required(values *Values, x map[string]any) {
	for _, name := range values.Required {
		if _, found := x[name]; found || !ch.fails() {
			continue
		}
		ch.enter(name, dottedStep)
		ch.add(field.Required(ch.field(), ""))
		ch.leave()
	}
}

// items checks the number of items and uniqueItems.
func (ch *checks) items(values *Values, x []any) int {
	n := int64(len(x))
	if min := values.MinItems; min != nil && n < *min {
		ch.invalid(n, "should have at least %d items", *min)
	}
	if max := values.MaxItems; max != nil && n > *max {
		if ch.fails() {
			ch.add(field.TooMany(ch.field(), int(n), int(*max)))
		}
	}
	if values.UniqueItems && len(duplicates(len(x), func(i int) any { return x[i] })) > 0 {
		ch.invalid("", "shouldn't contain duplicates")
	}
	return 2
}

// text checks the length, pattern and format of a string.
func (ch *checks) text(values *Values, x string) int {
	switch {
	case values.MaxLength != nil && int64(utf8.RuneCountInString(x)) > *values.MaxLength:
		if ch.fails() {
			ch.add(field.TooLong(ch.field(), "", int(*values.MaxLength)))
		}
	case values.MinLength != nil && int64(utf8.RuneCountInString(x)) < *values.MinLength:
		ch.invalid(x, "should be at least %d chars long", *values.MinLength)
	case values.Regexp != nil && !values.Regexp.MatchString(x):
		ch.invalid(x, "should match '%s'", values.Pattern)
	}
	if !values.text {
		return 1
	}
	if !strfmt.Default.Validates(values.checked, x) {
		ch.wrongType(values.checked, x)
	}
	return 2
}

// enum checks that a value is one of the allowed values.
func (ch *checks) enum(values *Values, x any) {
	if len(values.Enum) == 0 {
		return
	}
	for _, allowed := range values.Enum {
		if oneOf(x, allowed) {
			return
		}
	}
	if !ch.fails() {
		return
	}
	ch.add(field.NotSupported(ch.field(), x, enumTexts(values.Enum)))
}

// fails counts an error and reports whether it has to be built.
func (ch *checks) fails() bool {
	ch.failed++
	return !ch.quiet
}

func (ch *checks) add(err *field.Error) { ch.errs = append(ch.errs, err) }

// invalid adds an error about the value at the current path.
func (ch *checks) invalid(value any, format string, args ...any) {
	if ch.fails() {
		ch.add(field.Invalid(ch.field(), value, ch.pathText()+" in body "+fmt.Sprintf(format, args...)))
	}
}

// wrongType adds the error of a value that does not have the wanted type or format. got is the type of the value.
func (ch *checks) wrongType(want string, got string) {
	if ch.fails() {
		ch.add(field.TypeInvalid(ch.field(), got, fmt.Sprintf("%s in body must be of type %s: %q", ch.pathText(), want, got)))
	}
}

// whole adds an error about the whole object.
func (ch *checks) whole(format string, args ...any) {
	if ch.fails() {
		ch.add(field.Invalid(ch.base, "", fmt.Sprintf(format, args...)))
	}
}

// pathText returns the current path relative to the validated value, as messages write it.
func (ch *checks) pathText() string {
	var b strings.Builder
	for i, s := range ch.path {
		switch {
		case s.kind == indexStep:
			fmt.Fprintf(&b, "[%d]", s.index)
			continue
		case s.kind == dottedStep || i > 0:
			b.WriteByte('.')
		}
		b.WriteString(s.name)
	}
	return b.String()
}

// field returns the current path for the field of an error.
func (ch *checks) field() *field.Path {
	name := ch.pathText()
	if name == "" || name == "." {
		return ch.base
	}
	return ch.base.Child(strings.TrimPrefix(name, "."))
}

// memberErrors are the errors of the members of an object, found in the random order of a map.
type memberErrors []errorsOfMember

// errorsOfMember are the errors of one member and of what is in it, in the order in which kube-apiserver has them.
type errorsOfMember struct {
	name     string
	declared bool // in properties
	errs     field.ErrorList
}

// collect moves the errors of ch.errs from the index first on to found, as those of the member name.
func (ch *checks) collect(found *memberErrors, first int, name string, declared bool) {
	if len(ch.errs) > first {
		*found = append(*found, errorsOfMember{name, declared, slices.Clone(ch.errs[first:])})
		ch.errs = ch.errs[:first]
	}
}

// appendTo appends the errors in the order of the names, those of members that are not in properties first.
func (m memberErrors) appendTo(errs field.ErrorList) field.ErrorList {
	slices.SortFunc(m, func(a, b errorsOfMember) int {
		if a.declared != b.declared {
			if b.declared {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	for i := range m {
		errs = append(errs, m[i].errs...)
	}
	return errs
}

// unique removes errors that occur twice, because alternatives can find the same error.
func unique(errs field.ErrorList) field.ErrorList {
	type errorKey struct {
		kind          field.ErrorType
		field, detail string
	}
	if len(errs) < 2 {
		return errs
	}
	seen := make(map[errorKey]bool, len(errs))
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		t := errorKey{e.Type, e.Field, e.Detail}
		twice := seen[t]
		seen[t] = true
		return twice
	})
}
