// Package structuralschema applies the schema of a CustomResourceDefinition to objects (structural schemas, KEP-1693).
// Objects are trees as k8s.io/apimachinery/pkg/util/json decodes them: map[string]any, []any, string, int64, float64,
// bool and nil.
//
// What a write does with an object, in this order:
//
//  1. Decode gives metadata the types of ObjectMeta, and calls Prune and DropNulls: fields that the schema does not
//     specify, and nulls of fields that are not nullable, are removed.
//  2. SetDefaults sets the defaults of missing fields.
//  3. Validate or ValidateUpdate checks types, formats, limits, enums and combinators (allOf, anyOf, oneOf, not).
//     ValidateEmbedded checks embedded resources, ValidateLists the uniqueness in lists of type set and map.
//  4. The sub-package for the Common Expression Language evaluates x-kubernetes-validations.
//
// A read of an object that was stored under an older definition repeats steps 1 and 2.
//
// For example, with this schema:
//
//	type: object
//	properties:
//	  spec: {type: object, properties: {replicas: {type: integer, minimum: 1}, color: {type: string, default: red}}}
//
// the object
//
//	{"spec": {"replicas": 0, "colour": "blue"}}
//
// becomes {"spec": {"replicas": 0}} after Decode, which reports the unknown field spec.colour, and
// {"spec": {"replicas": 0, "color": "red"}} after SetDefaults. Validate then returns one error:
// spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1.
//
// A schema is compiled once, from the leaves to the root. New makes a Schema for each node, checks that it is
// structural, compiles patterns, and hashes the content of the node together with the hashes of its children
// (digest.go). A Cache returns an existing node for an equal hash, so that definitions with equal schemas, or with
// equal parts, share these in memory. The Cache holds its nodes weakly: the garbage collector frees a node when no
// compiled definition uses it any more. Each node also records what its subtree contains (facts), so that a walk for
// defaults, embedded resources or unique lists skips the subtrees without any.
//
// A Schema is never changed after New and may be used by several goroutines.
package structuralschema

import (
	"regexp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Schema is one node of a structural schema: what it requires of a value, and the schemas of the values below.
// Descriptions, titles and examples are not part of it; OpenAPI documents take those from the definition.
type Schema struct {
	// Type is object, array, string, integer, number or boolean; "" with IntOrString or PreserveUnknownFields.
	Type     string
	Nullable bool
	// Default is the default of the field, if HasDefault is true. It is shared: callers copy it before they use it.
	// A default of null counts as none.
	Default    any
	HasDefault bool

	Properties map[string]*Schema
	Items      *Schema
	// AdditionalProperties is the schema of the values of a map. AnyProperties is "additionalProperties: true" and
	// NoProperties is "additionalProperties: false".
	AdditionalProperties *Schema
	AnyProperties        bool
	NoProperties         bool

	PreserveUnknownFields bool
	EmbeddedResource      bool
	IntOrString           bool

	// kinds is the set of JSON types that Type and IntOrString allow; 0 allows all.
	kinds kind
	// below describes the content of this node and of the nodes below it.
	below facts

	// ListType is atomic, set or map; "" means atomic. ListMapKeys are the keys of a list of type map. MapType is
	// granular or atomic; "" means granular.
	ListType    string
	ListMapKeys []string
	MapType     string

	// Rules are the CEL rules of this node (x-kubernetes-validations).
	Rules []apiextensionsv1.ValidationRule

	// Values are the other conditions on the value, nil if there are none.
	Values *Values

	// defaulted are the sorted names of the properties that have a default.
	defaulted []string
}

// Values are the conditions that only restrict values.
type Values struct {
	// Format is the format in the definition, which may be one that is not checked.
	Format                             string
	Maximum, Minimum                   *float64
	ExclusiveMaximum, ExclusiveMinimum bool
	MultipleOf                         *float64
	MaxLength, MinLength               *int64
	Pattern                            string
	Regexp                             *regexp.Regexp // Pattern compiled, nil without a pattern
	MaxItems, MinItems                 *int64
	UniqueItems                        bool
	MaxProperties, MinProperties       *int64
	Required                           []string
	Enum                               []any

	AllOf, AnyOf, OneOf []*Condition
	Not                 *Condition

	// checked is Format if values are checked by it, "" otherwise. text is true if it is a format of strings.
	checked string
	text    bool
	// unknown is the type in the definition if it is not a type of JSON schemas. The kind of the node is then
	// unknownKind.
	unknown string
}

// Condition is a schema below a combinator. It may only restrict values, not specify fields.
type Condition struct {
	Values
	// Type is integer or string in the pattern of an int-or-string (anyOf: [{type: integer}, {type: string}]), and
	// "" everywhere else.
	Type       string
	Properties map[string]*Condition
	Items      *Condition
	// NoProperties is "additionalProperties: false".
	NoProperties bool
	// Rules are the CEL rules. Only some combinators may have rules.
	Rules []apiextensionsv1.ValidationRule

	kinds kind
}

// kind is a set of types of JSON values, one bit each.
type kind uint8

const (
	objectKind kind = 1 << iota
	arrayKind
	stringKind
	integerKind
	numberKind
	booleanKind
	// unknownKind is the kind of a type that JSON schemas do not have. No value has it.
	unknownKind
)

// facts is the set of features that a node or a node below it has. A walk skips subtrees without the feature that
// it looks for.
type facts uint8

const (
	hasDefaults facts = 1 << iota
	hasEmbedded
	hasUniqueLists // list-type set or map
)
