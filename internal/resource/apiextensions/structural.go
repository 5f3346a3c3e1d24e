package apiextensions

import (
	"fmt"
	"reflect"
	"regexp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// A schema is structural (KEP-1693) if every value has a type outside of the junctors allOf,
// anyOf, oneOf and not, and if junctors only restrict values that are specified outside of
// them. For example, {anyOf: [{properties: {a: {minimum: 1}}}]} is not structural, because
// the property a and its type are only specified in anyOf.

// unsupported returns a description of a member that structural schemas cannot have, "" if
// there is none.
func unsupported(s *props) string {
	for s := range schemas(s) {
		if why := unsupportedMember(s); why != "" {
			return why
		}
	}
	return ""
}

func unsupportedMember(s *props) string {
	name := structuralschema.UnsupportedMember(s)
	switch {
	case name != "" && name != "items":
		if name == "$schema" {
			name = "schema" // as kube-apiserver writes it
		}
		return fmt.Sprintf("OpenAPIV3Schema '%s' is not supported", name)
	case s.XPreserveUnknownFields != nil && !*s.XPreserveUnknownFields:
		return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
	case name == "items":
		return "OpenAPIV3Schema 'items' must be a schema, but is an array"
	}
	return ""
}

// schemaPlace is what a schema describes; error messages depend on it.
type schemaPlace int

const (
	root schemaPlace = iota
	item
	member
)

func (p schemaPlace) typeRequired() string {
	return [...]string{"must not be empty at the root", "must not be empty for specified array items",
		"must not be empty for specified object fields"}[p]
}

// validateStructural returns errors unless s is structural. s must not have unsupported
// members.
func validateStructural(s *props, path *field.Path) field.ErrorList {
	c := structureChecker{}
	c.node(s, root, path)
	c.checkSpecified(s, s, path, path)
	return c.errs
}

type structureChecker struct{ problems }

// node checks a schema outside of junctors, and all schemas below it.
func (c *structureChecker) node(s *props, at schemaPlace, path *field.Path) {
	items := itemsOf(s)
	if s.Type == "array" && items == nil {
		c.required(path.Child("items"), "must be specified")
	}
	if items != nil {
		c.node(items, item, path.Child("items"))
	}
	for name, child := range properties(s.Properties) {
		c.node(child, member, path.Child("properties").Key(name))
	}
	if a := s.AdditionalProperties; a != nil {
		c.forbidIf(at == root, path, "additionalProperties", "must not be used at the root")
		if a.Schema != nil {
			c.node(a.Schema, member, path.Child("additionalProperties"))
		}
	}
	c.extensions(s, path)
	// An int-or-string may name its two types in anyOf, or in the anyOf of the first schema of allOf. The second
	// form leaves room for further restrictions in allOf.
	first := len(s.AllOf) > 0 && isIntOrString(s.AllOf[0].AnyOf)
	c.checkJunctors(s, isIntOrString(s.AnyOf), first, path)
	c.types(s, at, path)
	c.metadata(s, at, path.Child("properties"))
}

// extensions validates the extensions that exclude each other. An int-or-string is a scalar, so it has no fields
// to preserve and is no resource. An embedded resource has the named fields apiVersion, kind and metadata, so it
// cannot be a map.
func (c *structureChecker) extensions(s *props, path *field.Path) {
	preserve := s.XPreserveUnknownFields != nil
	if s.XIntOrString {
		const message = "must be false if x-kubernetes-int-or-string is true"
		c.add(field.InvalidIf(preserve, path.Child("x-kubernetes-preserve-unknown-fields"), true, message))
		c.add(field.InvalidIf(s.XEmbeddedResource, path.Child("x-kubernetes-embedded-resource"), true, message))
	}
	c.forbidIf(s.XEmbeddedResource && s.AdditionalProperties != nil, path, "additionalProperties",
		"must not be used if x-kubernetes-embedded-resource is set")
	if s.XEmbeddedResource && !preserve && len(s.Properties) == 0 {
		c.required(path.Child("properties"),
			"must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields")
	}
}

// types validates the type of a schema outside of junctors. The type may be missing only if an extension says
// what values are allowed: int-or-string, or preserve-unknown-fields, which allows any value.
func (c *structureChecker) types(s *props, at schemaPlace, path *field.Path) {
	path = path.Child("type")
	const embedded = "must be object if x-kubernetes-embedded-resource is true"
	switch {
	case s.XEmbeddedResource && s.Type == "":
		c.required(path, embedded)
	case s.XEmbeddedResource && s.Type != "object":
		c.invalid(path, s.Type, embedded)
	case s.Type == "" && !s.XIntOrString && s.XPreserveUnknownFields == nil:
		c.required(path, at.typeRequired())
	}
	c.add(field.InvalidIf(at == root && s.Type != "" && s.Type != "object", path, s.Type,
		"must be object at the root"))
}

// metadata checks the schemas of apiVersion, kind and metadata in the schema of an object.
// path is the path of its properties.
func (c *structureChecker) metadata(s *props, at schemaPlace, path *field.Path) {
	if len(s.Properties) == 0 {
		return
	}
	object := at == root || s.XEmbeddedResource
	for _, name := range []string{"kind", "apiVersion"} {
		if p, found := s.Properties[name]; found && object && p.Type != "string" {
			c.invalid(path.Key(name).Child("type"), p.Type, "must be string")
		}
	}
	m, found := s.Properties["metadata"]
	if !found {
		return
	}
	c.add(field.InvalidIf(object && m.Type != "object", path.Key("metadata").Child("type"), m.Type,
		"must be object"))
	c.add(field.ForbiddenIf(at == root && !restrictsNamesOnly(m), path.Key("metadata"),
		"must not specify anything other than name and generateName, but metadata is implicitly specified"))
}

// restrictsNamesOnly reports whether a schema of metadata has only a type, a default (which
// another check refuses) and properties for name or generateName.
// m is a copy, so the function may clear its members.
func restrictsNamesOnly(m props) bool {
	names := 0
	for _, name := range []string{"name", "generateName"} {
		if _, found := m.Properties[name]; found {
			names++
		}
	}
	if names == len(m.Properties) {
		m.Properties = nil
	}
	m.Type, m.Default = "", nil
	return reflect.DeepEqual(dropEmptyFields(m), props{})
}

// isIntOrString reports whether anyOf has exactly the types integer and string.
func isIntOrString(anyOf []props) bool {
	return len(anyOf) == 2 && isTypeOnly(anyOf[0], "integer") && isTypeOnly(anyOf[1], "string")
}

// isTypeOnly reports whether a schema in a junctor has that type and no other member.
func isTypeOnly(s props, name string) bool {
	if !restrictsValues(s.AdditionalProperties) {
		s.AdditionalProperties = nil
	}
	return reflect.DeepEqual(dropEmptyFields(s), props{Type: name})
}

// dropEmptyFields removes empty members, which mean the same as missing ones.
// s is a copy; the lists in it are not changed.
func dropEmptyFields(s props) props {
	if s.Ref != nil && *s.Ref == "" {
		s.Ref = nil
	}
	if len(s.Enum) == 0 {
		s.Enum = nil
	}
	for _, list := range []*[]props{&s.AllOf, &s.AnyOf, &s.OneOf} {
		if len(*list) == 0 {
			*list = nil
		}
	}
	if s.Items != nil && s.Items.Schema == nil && len(s.Items.JSONSchemas) == 0 {
		s.Items = nil
	}
	if len(s.PatternProperties) == 0 {
		s.PatternProperties = nil
	}
	if len(s.Dependencies) == 0 {
		s.Dependencies = nil
	}
	if len(s.Definitions) == 0 {
		s.Definitions = nil
	}
	return s
}

// checkJunctors checks the junctors of s. The junctors of an int-or-string may have types: all
// of anyOf if anyTyped is true, those in the first of allOf if firstTyped is true.
func (c *structureChecker) checkJunctors(s *props, anyTyped, firstTyped bool, path *field.Path) {
	if !anyTyped {
		for i := range s.AnyOf {
			c.checkJunctor(&s.AnyOf[i], false, path.Child("anyOf").Index(i))
		}
	}
	for i := range s.AllOf {
		c.checkJunctor(&s.AllOf[i], firstTyped && i == 0, path.Child("allOf").Index(i))
	}
	for i := range s.OneOf {
		c.checkJunctor(&s.OneOf[i], false, path.Child("oneOf").Index(i))
	}
	if s.Not != nil {
		c.checkJunctor(s.Not, false, path.Child("not"))
	}
	if s.Pattern != "" {
		if _, err := regexp.Compile(s.Pattern); err != nil {
			c.invalid(path.Child("pattern"), s.Pattern, fmt.Sprintf("must be a valid regular expression, but isn't: %v", err))
		}
	}
}

// checkJunctor checks a schema in a junctor, which must not specify anything.
func (c *structureChecker) checkJunctor(s *props, anyTyped bool, path *field.Path) {
	c.checkJunctors(s, anyTyped, false, path)
	if items := itemsOf(s); items != nil {
		c.checkJunctor(items, false, path.Child("items"))
	}
	for name, child := range properties(s.Properties) {
		c.checkJunctor(child, false, path.Child("properties").Key(name))
	}
	const empty, undefined, isFalse = "must be empty to be structural", "must be undefined to be structural",
		"must be false to be structural"
	for _, m := range []struct {
		set       bool
		name, why string
	}{
		{s.Type != "", "type", empty},
		{restrictsValues(s.AdditionalProperties), "additionalProperties", undefined},
		{s.Default != nil, "default", undefined},
		{s.Title != "", "title", empty},
		{s.Description != "", "description", empty},
		{s.Nullable, "nullable", isFalse},
		{s.XPreserveUnknownFields != nil, "x-kubernetes-preserve-unknown-fields", isFalse},
		{s.XEmbeddedResource, "x-kubernetes-embedded-resource", isFalse},
		{s.XIntOrString, "x-kubernetes-int-or-string", isFalse},
		{len(s.XListMapKeys) > 0, "x-kubernetes-list-map-keys", empty},
		{s.XListType != nil, "x-kubernetes-list-type", undefined},
		{s.XMapType != nil, "x-kubernetes-map-type", undefined},
		{len(s.XValidations) > 0, "x-kubernetes-validations", empty},
	} {
		c.forbidIf(m.set, path, m.name, m.why)
	}
	// The server validates metadata itself. A schema may restrict the names only outside of junctors; see
	// restrictsNamesOnly.
	if _, found := s.Properties["metadata"]; found {
		c.forbidden(path.Child("properties").Key("metadata"), "must not be specified in a nested context")
	}
}

// restrictsValues reports whether additionalProperties restricts values. The value false does
// not count.
func restrictsValues(a *apiextensionsv1.JSONSchemaPropsOrBool) bool {
	return a != nil && (a.Schema != nil || a.Allows)
}

// checkSpecified checks that s specifies every field that the junctors of condition name. The
// two paths are those of condition and of s.
func (c *structureChecker) checkSpecified(condition, s *props, at, path *field.Path) {
	sub := func(condition *props, path *field.Path) { c.checkSpecifiedBelow(condition, s, at, path) }
	if condition.Not != nil {
		sub(condition.Not, path.Child("not"))
	}
	for _, list := range []struct {
		name       string
		conditions []props
	}{{"allOf", condition.AllOf}, {"anyOf", condition.AnyOf}, {"oneOf", condition.OneOf}} {
		for i := range list.conditions {
			sub(&list.conditions[i], path.Child(list.name).Index(i))
		}
	}
}

// checkSpecifiedBelow is checkSpecified for a schema that is not at the top of a junctor. For example, a junctor
// {properties: {a: {minimum: 1}}} requires that s has a property a. The error is at the missing place and names
// the junctor as the reason.
func (c *structureChecker) checkSpecifiedBelow(condition, s *props, at, path *field.Path) {
	c.checkSpecified(condition, s, at, path)
	if items := itemsOf(condition); items != nil {
		below, path := at.Child("items"), path.Child("items")
		if specified := itemsOf(s); specified != nil {
			c.checkSpecifiedBelow(items, specified, below, path)
		} else {
			c.required(below, "because it is defined in "+path.String())
		}
	}
	for name, child := range properties(condition.Properties) {
		below, path := at.Child("properties").Key(name), path.Child("properties").Key(name)
		if specified, found := s.Properties[name]; found {
			c.checkSpecifiedBelow(child, &specified, below, path)
		} else {
			c.required(below, "because it is defined in "+path.String())
		}
	}
}

// itemsOf returns the schema of a list's items, nil if there is none.
func itemsOf(s *props) *props {
	if s.Items == nil {
		return nil
	}
	return s.Items.Schema
}
