package structuralschema

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

// New returns the structural schema of a version of a definition, which must have been validated. It returns an error
// with the first path at which the schema is not structural; it does not find every violation. The result shares no
// memory with props.
func New(props *apiextensionsv1.JSONSchemaProps) (*Schema, error) {
	return NewCache().New(props)
}

// Written returns the schema of props for the validation of the defaults in a definition. It differs from New:
// defaults are not pruned; an int-or-string allows only the type beside it, if there is one; values are checked by
// every format; no value has an unknown type; and "additionalProperties: false" below a combinator is ignored.
func Written(props *apiextensionsv1.JSONSchemaProps) (*Schema, error) {
	return (&Cache{written: true}).New(props)
}

// New does what the function New does. Equal schemas that are in use are returned as the same pointer, and so are
// equal parts of them.
func (c *Cache) New(props *apiextensionsv1.JSONSchemaProps) (*Schema, error) {
	if props == nil {
		return nil, fmt.Errorf("there is no schema")
	}
	s, _, err := c.schema(props, nil)
	return s, err
}

// schemaPath is the path of a node in a schema, for errors.
type schemaPath struct {
	parent *schemaPath
	name   string
}

func (p *schemaPath) child(name string) *schemaPath { return &schemaPath{parent: p, name: name} }

func (p *schemaPath) property(name string) *schemaPath {
	return p.child("properties[" + name + "]")
}

func (p *schemaPath) index(name string, i int) *schemaPath {
	return p.child(fmt.Sprintf("%s[%d]", name, i))
}

func (p *schemaPath) String() string {
	if p == nil {
		return ""
	}
	return p.parent.String() + "." + p.name
}

func (p *schemaPath) errorf(format string, args ...any) error {
	return fmt.Errorf("schema%s is not structural: %s", p, fmt.Sprintf(format, args...))
}

// schema returns the node of props with all nodes below, and its digest.
func (c *Cache) schema(props *apiextensionsv1.JSONSchemaProps, at *schemaPath) (*Schema, digest, error) {
	if err := unsupported(props, at); err != nil {
		return nil, digest{}, err
	}
	var hashInput hashInput
	s := &Schema{
		Type:             props.Type,
		Nullable:         props.Nullable,
		EmbeddedResource: props.XEmbeddedResource,
		IntOrString:      props.XIntOrString,
		ListMapKeys:      slices.Clone(props.XListMapKeys),
		Rules:            rules(props, &hashInput),
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
	hashInput.text(s.Type, s.ListType, s.MapType)
	hashInput.texts(s.ListMapKeys)
	hashInput.flags(s.Nullable, s.PreserveUnknownFields, s.EmbeddedResource, s.IntOrString)
	if err := c.below(s, props, at, &hashInput); err != nil {
		return nil, digest{}, err
	}
	values, err := c.values(props, nodeTypeRules, at, &hashInput)
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
	s.summarize()
	if err := s.setDefault(props.Default, c.written, at, &hashInput); err != nil {
		return nil, digest{}, err
	}
	sum := hashInput.sum()
	return c.nodes.Add(sum, s), sum, nil
}

// below makes the nodes of properties, items and additionalProperties.
func (c *Cache) below(s *Schema, props *apiextensionsv1.JSONSchemaProps, at *schemaPath, hashInput *hashInput) error {
	hashInput.number(len(props.Properties))
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
		hashInput.text(name)
		hashInput.child(sum)
	}
	if props.Items != nil && props.Items.Schema != nil {
		node, sum, err := c.schema(props.Items.Schema, at.child("items"))
		if err != nil {
			return err
		}
		s.Items = node
		hashInput.text("items")
		hashInput.child(sum)
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
		hashInput.text("additionalProperties")
		hashInput.child(sum)
	case more.Allows:
		s.AnyProperties = true
		hashInput.text("anyProperties")
	default:
		s.NoProperties = true
		hashInput.text("noProperties")
	}
	return nil
}

// nodeTypeRules allows types in the two patterns of an int-or-string. Whether the node is an int-or-string is not
// checked here.
var nodeTypeRules = typeRules{anyOf: typesAllowed, firstAllOf: typesBelow}

// setDefault decodes the default and, unless the schema is made by Written, prunes it by the schema.
func (s *Schema) setDefault(raw *apiextensionsv1.JSON, written bool, at *schemaPath, hashInput *hashInput) error {
	hashInput.flags(raw != nil)
	if raw == nil {
		return nil
	}
	hashInput.text(string(raw.Raw))
	var err error
	if s.Default, err = decode(*raw); err != nil {
		return at.errorf("default: %v", err)
	}
	if s.HasDefault = s.Default != nil; s.HasDefault {
		s.below |= hasDefaults
	}
	if s.HasDefault && !written {
		if err := s.coerceEmbedded(s.Default, s.EmbeddedResource, &metadataDecoder{lenient: true}); err != nil {
			return at.errorf("default: %v", err)
		}
		var p pruner
		p.value(s.Default, s, s.EmbeddedResource)
	}
	return nil
}

// decode decodes a JSON value. A JSON that was itself decoded from null has no bytes; decode returns nil for it.
func decode(j apiextensionsv1.JSON) (any, error) {
	if len(j.Raw) == 0 {
		return nil, nil
	}
	var value any
	err := json.Unmarshal(j.Raw, &value)
	return value, err
}

// summarize sets below and defaulted from the children of the node.
func (s *Schema) summarize() {
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

// typeRules decide in which combinators of a node a type is allowed.
type typeRules struct{ anyOf, firstAllOf typeRule }

type typeRule uint8

const (
	typesForbidden typeRule = iota
	typesAllowed            // in the condition itself
	typesBelow              // in the conditions of its anyOf
)

// values returns the conditions on the value of a node, nil if there are none.
func (c *Cache) values(
	props *apiextensionsv1.JSONSchemaProps, types typeRules, at *schemaPath, hashInput *hashInput,
) (*Values, error) {
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
	plain := hashInput.values(v, props.Enum)
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
	if v.AllOf, err = c.conditionsOf(props.AllOf, "allOf", types.firstAllOf, typesForbidden, at, hashInput); err != nil {
		return nil, err
	}
	if v.AnyOf, err = c.conditionsOf(props.AnyOf, "anyOf", types.anyOf, types.anyOf, at, hashInput); err != nil {
		return nil, err
	}
	if v.OneOf, err = c.conditionsOf(props.OneOf, "oneOf", typesForbidden, typesForbidden, at, hashInput); err != nil {
		return nil, err
	}
	if props.Not != nil {
		not, sum, err := c.condition(props.Not, typesForbidden, at.child("not"))
		if err != nil {
			return nil, err
		}
		v.Not = not
		hashInput.text("not")
		hashInput.child(sum)
	}
	if !plain && v.AllOf == nil && v.AnyOf == nil && v.OneOf == nil && v.Not == nil {
		return nil, nil
	}
	return v, nil
}

// conditionsOf returns the conditions of one combinator.
func (c *Cache) conditionsOf(
	all []apiextensionsv1.JSONSchemaProps, name string, first, others typeRule, at *schemaPath, hashInput *hashInput,
) ([]*Condition, error) {
	hashInput.number(len(all))
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
		hashInput.child(sum)
	}
	return out, nil
}

// condition returns a condition of a combinator with all conditions below, and its digest.
func (c *Cache) condition(
	props *apiextensionsv1.JSONSchemaProps, types typeRule, at *schemaPath,
) (*Condition, digest, error) {
	if err := unsupported(props, at); err != nil {
		return nil, digest{}, err
	}
	if err := restrictsOnly(props, types, at); err != nil {
		return nil, digest{}, err
	}
	var hashInput hashInput
	out := &Condition{Type: props.Type, Rules: rules(props, &hashInput)}
	out.kinds, _ = kindsOf(out.Type, false)
	hashInput.text(out.Type)
	inner := typeRules{}
	if types == typesBelow {
		inner.anyOf = typesAllowed
	}
	values, err := c.values(props, inner, at, &hashInput)
	if err != nil {
		return nil, digest{}, err
	}
	if values != nil {
		out.Values = *values
		out.check(c.checkedFormat(values.Format, out.Type, false))
	}
	hashInput.number(len(props.Properties))
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
		hashInput.text(name)
		hashInput.child(sum)
	}
	if props.Items != nil && props.Items.Schema != nil {
		node, sum, err := c.condition(props.Items.Schema, typesForbidden, at.child("items"))
		if err != nil {
			return nil, digest{}, err
		}
		out.Items = node
		hashInput.text("items")
		hashInput.child(sum)
	}
	if props.AdditionalProperties != nil && !c.written {
		out.NoProperties = true
		hashInput.text("noProperties")
	}
	sum := hashInput.sum()
	return c.conditions.Add(sum, out), sum, nil
}

// UnsupportedMember returns the name of a member that structural schemas must not have, "" if there is none. It returns
// "items" if that is a list of schemas.
func UnsupportedMember(props *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case props.ID != "":
		return "id"
	case props.Schema != "":
		return "$schema"
	case props.Ref != nil && *props.Ref != "":
		return "$ref"
	case len(props.PatternProperties) > 0:
		return "patternProperties"
	case len(props.Dependencies) > 0:
		return "dependencies"
	case props.AdditionalItems != nil:
		return "additionalItems"
	case len(props.Definitions) > 0:
		return "definitions"
	case props.Items != nil && len(props.Items.JSONSchemas) > 0:
		return "items"
	}
	return ""
}

func unsupported(props *apiextensionsv1.JSONSchemaProps, at *schemaPath) error {
	switch name := UnsupportedMember(props); name {
	case "":
		return nil
	case "items":
		return at.errorf("items must be a schema, not an array")
	default:
		return at.errorf("%s is not supported", name)
	}
}

// restrictsOnly returns an error if a condition has a member that specifies fields instead of restricting values.
func restrictsOnly(props *apiextensionsv1.JSONSchemaProps, types typeRule, at *schemaPath) error {
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

func rules(props *apiextensionsv1.JSONSchemaProps, hashInput *hashInput) []apiextensionsv1.ValidationRule {
	hashInput.number(len(props.XValidations))
	if len(props.XValidations) == 0 {
		return nil
	}
	out := make([]apiextensionsv1.ValidationRule, len(props.XValidations))
	for i := range out {
		props.XValidations[i].DeepCopyInto(&out[i])
		hashInput.rule(&out[i])
	}
	return out
}

// kindsOf returns the kinds of values that a type allows, 0 for all, and whether the type is known.
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

// stringFormats are the formats, without dashes, that strings are checked by. A definition may have other formats,
// which are ignored.
var stringFormats = strings.Fields(`bsonobjectid uri email hostname ipv4 ipv6 cidr mac uuid uuid3 uuid4 uuid5
	isbn isbn10 isbn13 creditcard ssn hexcolor rgbcolor byte password date duration datetime k8sshortname k8slongname`)

// check sets the format that values are checked by.
func (v *Values) check(format string) {
	v.checked = format
	v.text = format != "" && strfmt.Default.ContainsName(format)
}

// checkedFormat returns format if values of the type are checked by it, "" otherwise.
func (c *Cache) checkedFormat(format, typ string, intOrString bool) string {
	if c.written {
		return format
	}
	if intOrString {
		typ = ""
	}
	checked := false
	switch typ {
	case "", "string":
		checked = slices.Contains(stringFormats, strings.ReplaceAll(format, "-", ""))
	case "integer":
		checked = format == "int32" || format == "int64"
	case "number":
		checked = format == "float" || format == "double"
	}
	if checked {
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
