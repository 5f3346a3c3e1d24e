// Package structural is what a CustomResourceDefinition's schema means for the
// objects it describes: what is pruned, defaulted and valid (KEP-1693, structural
// schemas). Objects are trees as k8s.io/apimachinery/pkg/util/json decodes them:
// map[string]any, []any, string, int64, float64, bool and nil.
//
// A Schema is made once, is never changed afterwards, and may be shared by
// definitions whose schemas are equal; so may each of its nodes, even at several
// places of one schema.
package structural

import (
	"regexp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// A Schema is one node of a structural schema: what it says of the value at its
// place, and the schemas of what is below. Descriptions, titles and examples are
// not part of it; documents take those from the definition.
type Schema struct {
	// Type is object, array, string, integer, number or boolean; "" where
	// IntOrString or PreserveUnknownFields says what is allowed.
	Type     string
	Nullable bool
	// Default is set where it is missing, if HasDefault. It is shared: copy it. A
	// default of null is none.
	Default    any
	HasDefault bool

	Properties map[string]*Schema
	Items      *Schema
	// AdditionalProperties is the schema of the values of a map. AnyProperties
	// stands for "additionalProperties: true", NoProperties for "false".
	AdditionalProperties *Schema
	AnyProperties        bool
	NoProperties         bool

	PreserveUnknownFields bool
	EmbeddedResource      bool
	IntOrString           bool

	// kinds are the kinds of JSON values that Type and IntOrString allow, 0 for all.
	kinds kind
	// below says what this node or any below it has.
	below facts

	// ListType is atomic, set or map; "" is atomic. ListMapKeys are the keys of a
	// map. MapType is granular or atomic; "" is granular.
	ListType    string
	ListMapKeys []string
	MapType     string

	// Rules are the CEL rules of this node (x-kubernetes-validations).
	Rules []apiextensionsv1.ValidationRule

	// Values are the further conditions on the value, nil if there are none.
	Values *Values

	// defaulted are the names of the properties that have a default.
	defaulted []string
}

// Values are the conditions on values that do not change what is specified. Those
// of the combinators may name properties and items of their own.
type Values struct {
	// Format is as the definition has it, whether values are held to it or not.
	Format                             string
	Maximum, Minimum                   *float64
	ExclusiveMaximum, ExclusiveMinimum bool
	MultipleOf                         *float64
	MaxLength, MinLength               *int64
	Pattern                            string
	Regexp                             *regexp.Regexp // of Pattern, nil without one
	MaxItems, MinItems                 *int64
	UniqueItems                        bool
	MaxProperties, MinProperties       *int64
	Required                           []string
	Enum                               []any

	AllOf, AnyOf, OneOf []*Condition
	Not                 *Condition

	// checked is Format where values are held to it, "" otherwise; text says that it
	// is one of strings.
	checked string
	text    bool
	// unknown is the type of a node whose kind is unknownKind.
	unknown string
}

// A Condition is a schema below a combinator: it may only restrict values.
type Condition struct {
	Values
	// Type is integer or string where an int-or-string says so in so many words
	// (anyOf: [{type: integer}, {type: string}]), "" everywhere else.
	Type       string
	Properties map[string]*Condition
	Items      *Condition
	// NoProperties stands for "additionalProperties: false".
	NoProperties bool
	// Rules are the CEL rules that some combinators may hold.
	Rules []apiextensionsv1.ValidationRule

	kinds kind
}

// kind is a set of kinds of JSON values.
type kind uint8

const (
	objectKind kind = 1 << iota
	arrayKind
	stringKind
	integerKind
	numberKind
	booleanKind
	// unknownKind is that of a type there is none of. No value has it.
	unknownKind
)

// facts are what a walk over a schema may look for. A walk leaves out subtrees that
// have nothing of it.
type facts uint8

const (
	hasDefaults facts = 1 << iota
	hasEmbedded
	hasUniqueLists // list-type set or map
)
