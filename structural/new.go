package structural

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// New returns the structural schema of what a version of a definition says. The
// definition must have been validated: an error tells of a schema that is not
// structural, at the first place found, but not each such schema is found. Nothing
// of the result refers to props.
func New(props *apiextensionsv1.JSONSchemaProps) (*Schema, error) {
	return NewCache().New(props)
}

// Written returns the structural schema of props as it is written, by which defaults
// are judged before there are objects: they are not pruned, an int-or-string allows
// what the type beside it allows, values are held to any format, an unknown type is
// one that no value has, and that a condition allows no more properties is not seen.
func Written(props *apiextensionsv1.JSONSchemaProps) (*Schema, error) {
	return (&Cache{written: true}).New(props)
}

// New returns the structural schema of props as the function of that name does.
// Equal schemas that are in use are the same, and so are equal parts of them.
func (c *Cache) New(props *apiextensionsv1.JSONSchemaProps) (*Schema, error) {
	if props == nil {
		return nil, fmt.Errorf("there is no schema")
	}
	s, _, err := c.schema(props, nil)
	return s, err
}

// place is where in a schema a node is, for errors.
type place struct {
	parent *place
	name   string
}

func (p *place) child(name string) *place { return &place{parent: p, name: name} }

func (p *place) property(name string) *place {
	return p.child("properties[" + name + "]")
}

func (p *place) index(name string, i int) *place {
	return p.child(fmt.Sprintf("%s[%d]", name, i))
}

func (p *place) String() string {
	if p == nil {
		return ""
	}
	return p.parent.String() + "." + p.name
}

func (p *place) errorf(format string, args ...any) error {
	return fmt.Errorf("schema%s is not structural: %s", p, fmt.Sprintf(format, args...))
}

// schema makes the node of props and those below.
func (c *Cache) schema(props *apiextensionsv1.JSONSchemaProps, at *place) (*Schema, digest, error) {
	if err := unsupported(props, at); err != nil {
		return nil, digest{}, err
	}
	var content content
	s := &Schema{
		Type:             props.Type,
		Nullable:         props.Nullable,
		EmbeddedResource: props.XEmbeddedResource,
		IntOrString:      props.XIntOrString,
		ListMapKeys:      slices.Clone(props.XListMapKeys),
		Rules:            rules(props, &content),
	}
	if props.XPreserveUnknownFields != nil {
		if !*props.XPreserveUnknownFields {
			return nil, digest{}, at.errorf("x-kubernetes-preserve-unknown-fields must be true or undefined")
		}
		s.PreserveUnknownFields = true
	}
	if props.XListType != nil {
		s.ListType = *props.XListType
	}
	if props.XMapType != nil {
		s.MapType = *props.XMapType
	}
	if s.Type == "" && !s.IntOrString && !s.PreserveUnknownFields {
		return nil, digest{}, at.errorf("type must not be empty")
	}
	var known bool
	if s.kinds, known = kindsOf(s.Type, s.IntOrString && !c.written); !known && !c.written {
		return nil, digest{}, at.errorf("type %q is unknown", s.Type)
	}
	content.text(s.Type, s.ListType, s.MapType)
	content.texts(s.ListMapKeys)
	content.flags(s.Nullable, s.PreserveUnknownFields, s.EmbeddedResource, s.IntOrString)
	if err := c.below(s, props, at, &content); err != nil {
		return nil, digest{}, err
	}
	values, err := c.values(props, nodeJunctions, at, &content)
	if err != nil {
		return nil, digest{}, err
	}
	if !known {
		if values == nil {
			values = &Values{}
		}
		values.unknown, s.kinds = s.Type, unknownKind
	}
	if values != nil {
		values.check(c.checkedFormat(values.Format, s.Type, s.IntOrString))
		s.Values = values
	}
	s.gather()
	if err := s.takeDefault(props.Default, c.written, at, &content); err != nil {
		return nil, digest{}, err
	}
	sum := content.sum()
	return c.nodes.Add(sum, s), sum, nil
}

// below makes the nodes of properties, items and values of maps.
func (c *Cache) below(s *Schema, props *apiextensionsv1.JSONSchemaProps, at *place, content *content) error {
	content.number(len(props.Properties))
	if len(props.Properties) > 0 {
		s.Properties = make(map[string]*Schema, len(props.Properties))
	}
	for _, name := range sortedKeys(props.Properties) {
		property := props.Properties[name]
		node, sum, err := c.schema(&property, at.property(name))
		if err != nil {
			return err
		}
		s.Properties[name] = node
		content.text(name)
		content.child(sum)
	}
	if props.Items != nil && props.Items.Schema != nil {
		node, sum, err := c.schema(props.Items.Schema, at.child("items"))
		if err != nil {
			return err
		}
		s.Items = node
		content.text("items")
		content.child(sum)
	}
	more := props.AdditionalProperties
	switch {
	case more == nil:
	case more.Schema != nil:
		node, sum, err := c.schema(more.Schema, at.child("additionalProperties"))
		if err != nil {
			return err
		}
		s.AdditionalProperties = node
		content.text("additionalProperties")
		content.child(sum)
	case more.Allows:
		s.AnyProperties = true
		content.text("anyProperties")
	default:
		s.NoProperties = true
		content.text("noProperties")
	}
	return nil
}

// nodeJunctions says where below a node types may stand: in the pattern of an
// int-or-string, whether the node says that it is one or not.
var nodeJunctions = junctions{anyOf: typesAllowed, firstAllOf: typesBelow}

// takeDefault decodes the default and drops from it what the schema does not know,
// unless it is taken as written.
func (s *Schema) takeDefault(raw *apiextensionsv1.JSON, written bool, at *place, content *content) error {
	content.flags(raw != nil)
	if raw == nil {
		return nil
	}
	content.text(string(raw.Raw))
	var err error
	if s.Default, err = decode(*raw); err != nil {
		return at.errorf("default: %v", err)
	}
	if s.HasDefault = s.Default != nil; s.HasDefault {
		s.below |= hasDefaults
	}
	if s.HasDefault && !written {
		if err := s.coerceEmbedded(s.Default, s.EmbeddedResource, &decoding{lenient: true}); err != nil {
			return at.errorf("default: %v", err)
		}
		var p pruning
		p.value(s.Default, s, s.EmbeddedResource)
	}
	return nil
}

// decode decodes a value. There are no bytes in one that was decoded from null.
func decode(j apiextensionsv1.JSON) (any, error) {
	if len(j.Raw) == 0 {
		return nil, nil
	}
	var value any
	err := json.Unmarshal(j.Raw, &value)
	return value, err
}

// gather sets what walks need to know of the node and below.
func (s *Schema) gather() {
	each := func(child *Schema) {
		if child != nil {
			s.below |= child.below
		}
	}
	each(s.Items)
	each(s.AdditionalProperties)
	for name, child := range s.Properties {
		each(child)
		if child.HasDefault {
			s.defaulted = append(s.defaulted, name)
		}
	}
	slices.Sort(s.defaulted)
	if s.EmbeddedResource {
		s.below |= hasEmbedded
	}
	if s.ListType == "set" || s.ListType == "map" {
		s.below |= hasUniqueLists
	}
}

// junctions says of a node's combinators in which of them types may stand.
type junctions struct{ anyOf, firstAllOf typing }

type typing uint8

const (
	typesForbidden typing = iota
	typesAllowed          // in the condition itself
	typesBelow            // in the conditions of its anyOf
)

// values makes the conditions on the value of a node, nil if there are none.
func (c *Cache) values(props *apiextensionsv1.JSONSchemaProps, types junctions, at *place, content *content) (*Values, error) {
	v := &Values{
		Format:  props.Format,
		Maximum: clone(props.Maximum), ExclusiveMaximum: props.ExclusiveMaximum,
		Minimum: clone(props.Minimum), ExclusiveMinimum: props.ExclusiveMinimum,
		MultipleOf: clone(props.MultipleOf),
		MaxLength:  clone(props.MaxLength), MinLength: clone(props.MinLength),
		Pattern:  props.Pattern,
		MaxItems: clone(props.MaxItems), MinItems: clone(props.MinItems),
		UniqueItems:   props.UniqueItems,
		MaxProperties: clone(props.MaxProperties), MinProperties: clone(props.MinProperties),
		Required: slices.Clone(props.Required),
	}
	plain := content.values(v, props.Enum)
	for _, e := range props.Enum {
		value, err := decode(e)
		if err != nil {
			return nil, at.errorf("enum: %v", err)
		}
		v.Enum = append(v.Enum, value)
	}
	if v.Pattern != "" {
		var err error
		v.Regexp, err = c.patterns.Get(v.Pattern, func() (*regexp.Regexp, error) { return regexp.Compile(v.Pattern) })
		if err != nil {
			return nil, at.errorf("pattern: %v", err)
		}
	}
	var err error
	if v.AllOf, err = c.conditionsOf(props.AllOf, "allOf", types.firstAllOf, typesForbidden, at, content); err != nil {
		return nil, err
	}
	if v.AnyOf, err = c.conditionsOf(props.AnyOf, "anyOf", types.anyOf, types.anyOf, at, content); err != nil {
		return nil, err
	}
	if v.OneOf, err = c.conditionsOf(props.OneOf, "oneOf", typesForbidden, typesForbidden, at, content); err != nil {
		return nil, err
	}
	if props.Not != nil {
		not, sum, err := c.condition(props.Not, typesForbidden, at.child("not"))
		if err != nil {
			return nil, err
		}
		v.Not = not
		content.text("not")
		content.child(sum)
	}
	if !plain && v.AllOf == nil && v.AnyOf == nil && v.OneOf == nil && v.Not == nil {
		return nil, nil
	}
	return v, nil
}

// conditionsOf makes the conditions of one combinator.
func (c *Cache) conditionsOf(all []apiextensionsv1.JSONSchemaProps, name string, first, others typing, at *place, content *content) ([]*Condition, error) {
	content.number(len(all))
	var out []*Condition
	for i := range all {
		types := others
		if i == 0 {
			types = first
		}
		condition, sum, err := c.condition(&all[i], types, at.index(name, i))
		if err != nil {
			return nil, err
		}
		out = append(out, condition)
		content.child(sum)
	}
	return out, nil
}

// condition makes a condition of a combinator and those below.
func (c *Cache) condition(props *apiextensionsv1.JSONSchemaProps, types typing, at *place) (*Condition, digest, error) {
	if err := unsupported(props, at); err != nil {
		return nil, digest{}, err
	}
	if err := restrictsOnly(props, types, at); err != nil {
		return nil, digest{}, err
	}
	var content content
	out := &Condition{Type: props.Type, Rules: rules(props, &content)}
	out.kinds, _ = kindsOf(out.Type, false)
	content.text(out.Type)
	inner := junctions{}
	if types == typesBelow {
		inner.anyOf = typesAllowed
	}
	values, err := c.values(props, inner, at, &content)
	if err != nil {
		return nil, digest{}, err
	}
	if values != nil {
		out.Values = *values
		out.check(c.checkedFormat(values.Format, out.Type, false))
	}
	content.number(len(props.Properties))
	if len(props.Properties) > 0 {
		out.Properties = make(map[string]*Condition, len(props.Properties))
	}
	for _, name := range sortedKeys(props.Properties) {
		property := props.Properties[name]
		node, sum, err := c.condition(&property, typesForbidden, at.property(name))
		if err != nil {
			return nil, digest{}, err
		}
		out.Properties[name] = node
		content.text(name)
		content.child(sum)
	}
	if props.Items != nil && props.Items.Schema != nil {
		node, sum, err := c.condition(props.Items.Schema, typesForbidden, at.child("items"))
		if err != nil {
			return nil, digest{}, err
		}
		out.Items = node
		content.text("items")
		content.child(sum)
	}
	if props.AdditionalProperties != nil && !c.written {
		out.NoProperties = true
		content.text("noProperties")
	}
	sum := content.sum()
	return c.conditions.Add(sum, out), sum, nil
}

// unsupported finds what no structural schema may have.
func unsupported(props *apiextensionsv1.JSONSchemaProps, at *place) error {
	name := ""
	switch {
	case props.ID != "":
		name = "id"
	case props.Schema != "":
		name = "$schema"
	case props.Ref != nil && *props.Ref != "":
		name = "$ref"
	case len(props.PatternProperties) > 0:
		name = "patternProperties"
	case len(props.Dependencies) > 0:
		name = "dependencies"
	case props.AdditionalItems != nil:
		name = "additionalItems"
	case len(props.Definitions) > 0:
		name = "definitions"
	case props.Items != nil && len(props.Items.JSONSchemas) > 0:
		return at.errorf("items must be a schema, not an array")
	default:
		return nil
	}
	return at.errorf("%s is not supported", name)
}

// restrictsOnly finds what a condition must not have because it specifies.
func restrictsOnly(props *apiextensionsv1.JSONSchemaProps, types typing, at *place) error {
	name := ""
	switch {
	case props.Type != "" && types != typesAllowed:
		name = "type"
	case props.Type != "" && props.Type != "integer" && props.Type != "string":
		return at.errorf("type must be integer or string")
	case props.AdditionalProperties != nil && (props.AdditionalProperties.Schema != nil || props.AdditionalProperties.Allows):
		name = "additionalProperties"
	case props.Default != nil && len(props.Default.Raw) > 0 && !bytes.Equal(props.Default.Raw, []byte("null")):
		name = "default"
	case props.Nullable:
		name = "nullable"
	case props.XPreserveUnknownFields != nil:
		name = "x-kubernetes-preserve-unknown-fields"
	case props.XEmbeddedResource:
		name = "x-kubernetes-embedded-resource"
	case props.XIntOrString:
		name = "x-kubernetes-int-or-string"
	case len(props.XListMapKeys) > 0 || props.XListType != nil || props.XMapType != nil:
		name = "x-kubernetes-list-type, -list-map-keys or -map-type"
	default:
		return nil
	}
	return at.errorf("%s must not stand below a combinator", name)
}

func rules(props *apiextensionsv1.JSONSchemaProps, content *content) []apiextensionsv1.ValidationRule {
	content.number(len(props.XValidations))
	if len(props.XValidations) == 0 {
		return nil
	}
	out := make([]apiextensionsv1.ValidationRule, len(props.XValidations))
	for i := range out {
		props.XValidations[i].DeepCopyInto(&out[i])
		content.rule(&out[i])
	}
	return out
}

// kindsOf returns the kinds of values that a type allows, 0 for all, and whether
// there is such a type.
func kindsOf(name string, intOrString bool) (kind, bool) {
	if intOrString {
		_, known := kindsOf(name, false)
		return integerKind | stringKind, known
	}
	switch name {
	case "":
		return 0, true
	case "object":
		return objectKind, true
	case "array":
		return arrayKind, true
	case "string":
		return stringKind, true
	case "integer":
		return integerKind, true
	case "number":
		return numberKind, true
	case "boolean":
		return booleanKind, true
	}
	return 0, false
}

// stringFormats are the formats that strings are held to, without dashes. Other
// formats may stand in a definition and mean nothing.
var stringFormats = strings.Fields(`bsonobjectid uri email hostname ipv4 ipv6 cidr mac uuid uuid3 uuid4 uuid5
	isbn isbn10 isbn13 creditcard ssn hexcolor rgbcolor byte password date duration datetime k8sshortname k8slongname`)

// check sets the format that values are held to.
func (v *Values) check(format string) {
	v.checked = format
	v.text = format != "" && strfmt.Default.ContainsName(format)
}

// checkedFormat returns format where values of the type are held to it.
func (c *Cache) checkedFormat(format, typ string, intOrString bool) string {
	if c.written {
		return format
	}
	if intOrString {
		typ = ""
	}
	held := false
	switch typ {
	case "", "string":
		held = slices.Contains(stringFormats, strings.ReplaceAll(format, "-", ""))
	case "integer":
		held = format == "int32" || format == "int64"
	case "number":
		held = format == "float" || format == "double"
	}
	if held {
		return format
	}
	return ""
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
