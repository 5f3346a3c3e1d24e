package apiextensions

import (
	"fmt"
	"slices"

	internalapi "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apifield "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
	"github.com/keelson-dev/keelson/internal/object/structuralschema/celrules"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// types are the supported types of a schema, sorted.
var types = []string{"array", "boolean", "integer", "number", "object", "string"}

// checkSchema validates the schema of a version. status reports whether the version has the
// status subresource.
func (c *specChecker) checkSchema(
	v *apiextensionsv1.CustomResourceValidation, status bool, version string, path *field.Path,
) {
	if v == nil || v.OpenAPIV3Schema == nil {
		return
	}
	s, path := v.OpenAPIV3Schema, path.Child("openAPIV3Schema")
	before := len(c.errs)
	if status {
		c.checkStatusRoot(s, path)
	}
	c.add(field.ForbiddenIf(s.Nullable, path.Child("nullable"),
		"nullable cannot be true at the root"))
	walk := schemaChecker{earlier: c.previous}
	walk.check(s, scope{isRoot: true}, path)
	var schema *structuralschema.Schema
	unreadable := walk.unsupported
	if c.structural && unreadable == "" {
		schema, unreadable = c.checkStructure(s, walk.judges, path)
	}
	if schema == nil {
		walk.checkRuleTexts()
	}
	c.add(walk.errs)
	if c.structural && unreadable != "" && len(c.errs) == before {
		// Other errors describe the same problem in more detail.
		c.invalid(path, "", unreadable)
	}
	if schema != nil && len(walk.ruled) > 0 {
		c.add(celrules.Check(schema, celrules.CheckOptions{Path: path.K8s(), Root: true, Flawed: walk.flawed,
			Previous: c.previous.schemas(), Unchanged: c.previous.hasSchema(version, v)}))
	}
}

// checkStructure converts a schema without unsupported members to a structural schema with
// valid defaults. It returns nil if the schema is not structural, or if it is not needed
// because it has neither defaults nor rules (judges is false). If the schema cannot be
// converted, unreadable is the reason, which is not added to the errors.
func (c *specChecker) checkStructure(
	s *props, judges bool, path *field.Path,
) (schema *structuralschema.Schema, unreadable string) {
	if errs := validateStructural(s, path); len(errs) > 0 {
		c.add(errs)
		return nil, ""
	}
	if !judges {
		return nil, ""
	}
	schema, err := resourceSchema(s)
	if err != nil {
		return nil, err.Error()
	}
	if errs := c.validateDefaults(schema, path); len(errs) > 0 {
		c.add(errs)
		return nil, ""
	}
	return schema, ""
}

// resourceSchema converts the schema of a resource to a structural schema, without changes.
func resourceSchema(s *props) (*structuralschema.Schema, error) {
	resource := *s
	resource.XEmbeddedResource = true
	return structuralschema.Written(&resource)
}

// checkStatusRoot allows at the root only members that do not affect validating the status
// alone, because the status subresource validates only that part.
func (c *specChecker) checkStatusRoot(s *props, path *field.Path) {
	// Only the first member in this order is reported.
	identified := s.ID != "" || s.Schema != "" || s.Ref != nil
	switch {
	case !identified && s.Type != "" && s.Type != "object":
		c.invalid(path.Child("type"), s.Type,
			`only "object" is allowed as the type at the root of the schema if the status subresource is enabled`)
	case identified || s.Nullable || s.Default != nil || s.Enum != nil ||
		s.MaxProperties != nil || s.MinProperties != nil || s.AllOf != nil || s.OneOf != nil || s.AnyOf != nil ||
		s.Not != nil ||
		s.AdditionalProperties != nil || s.PatternProperties != nil || s.Dependencies != nil || s.AdditionalItems != nil ||
		s.Definitions != nil ||
		s.XEmbeddedResource || s.XIntOrString || s.XListMapKeys != nil || s.XListType != nil || s.XMapType != nil:
		c.invalid(path, internalSchema(s),
			"only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "+
				"MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example "+
				"XPreserveUnknownFields XValidations] "+
				"fields are allowed at the root of the schema if the status subresource is enabled")
	}
}

// internalSchema returns a schema as it appears in kube-apiserver's messages.
func internalSchema(s *props) any {
	var out internalapi.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(s, &out, nil); err != nil {
		return err.Error()
	}
	return out
}

// internalItems returns the member items as it appears in kube-apiserver's messages.
func internalItems(items *apiextensionsv1.JSONSchemaPropsOrArray) any {
	var out internalapi.JSONSchemaPropsOrArray
	if err := apiextensionsv1.Convert_v1_JSONSchemaPropsOrArray_To_apiextensions_JSONSchemaPropsOrArray(items, &out,
		nil); err != nil {
		return err.Error()
	}
	return &out
}

// schemaChecker validates a schema and all schemas below it, junctors (allOf, anyOf, oneOf,
// not) included, by the rules that do not require a structural schema.
type schemaChecker struct {
	problems
	earlier previousDefinition
	// flawed has the paths of the schemas with errors, not the paths in the errors.
	flawed []*apifield.Path
	// unsupported describes the first member that is not supported, if any.
	unsupported string
	// judges is true if there are defaults or rules. ruled has the schemas with rules.
	judges bool
	ruled  []ruled
}

// ruled is a schema with rules.
type ruled struct {
	schema *props
	path   *field.Path
}

// scope has the rules that depend on where a schema is.
type scope struct {
	isRoot bool
	// meta is true for the schemas of kind, apiVersion and metadata.
	meta bool
	// noDefault is the reason why a default is forbidden; "" if it is allowed.
	noDefault string
}

// check validates s and the schemas in it, those below first. Some flaws, such as an unknown type, are not
// reported if any schema of the previous definition has the same one (earlier.has): definitions that were created
// before such a rule must stay updatable.
func (c *schemaChecker) check(s *props, at scope, path *field.Path) {
	if s == nil {
		return
	}
	c.below(s, at, path)
	before := len(c.errs)
	c.members(s, at, path)
	c.mapType(s, path)
	c.listType(s, path)
	c.listKeys(s, path)
	if errs := validateListItems(s, path); len(errs) > 0 && !c.earlier.has(hasInvalidListItems) {
		c.add(errs)
	}
	if len(c.errs) > before {
		c.flawed = append(c.flawed, path.K8s())
	}
	if c.unsupported == "" {
		c.unsupported = unsupportedMember(s)
	}
	c.judges = c.judges || s.Default != nil || len(s.XValidations) > 0
	if len(s.XValidations) > 0 {
		c.ruled = append(c.ruled, ruled{s, path})
	}
}

// members checks the members that are never supported, or not with this value.
func (c *schemaChecker) members(s *props, at scope, path *field.Path) {
	if hasUnknownType(s) && !c.earlier.has(hasUnknownType) {
		c.add(field.OneOf(path.Child("type"), s.Type, types...))
	}
	if s.Default != nil && at.noDefault != "" {
		c.forbidden(path.Child("default"), "must not be set "+at.noDefault)
	}
	for _, m := range [...]struct {
		set  bool
		name string
	}{
		{s.ID != "", "id"}, {s.AdditionalItems != nil, "additionalItems"},
		{len(s.PatternProperties) > 0, "patternProperties"},
		{len(s.Definitions) > 0, "definitions"}, {s.Dependencies != nil, "dependencies"}, {s.Ref != nil, "$ref"},
	} {
		if m.set {
			c.forbidden(path.Child(m.name), m.name+" is not supported")
		}
	}
	c.forbidIf(s.Type == "null", path, "type", "type cannot be set to null, use nullable as an alternative")
	c.forbidIf(s.Items != nil && len(s.Items.JSONSchemas) > 0, path, "items",
		"items must be a schema object and not an array")
	c.forbidIf(at.meta && s.XEmbeddedResource, path, "x-kubernetes-embedded-resource",
		"must not be used inside of resource meta")
	c.forbidIf(s.UniqueItems, path, "uniqueItems",
		"uniqueItems cannot be set to true since the runtime complexity becomes quadratic")
	// additionalProperties: true beside properties is accepted, because it does not restrict anything. A schema
	// or false is refused.
	if a := s.AdditionalProperties; a != nil && len(s.Properties) > 0 && (!a.Allows || a.Schema != nil) {
		c.forbidden(path.Child("additionalProperties"), "additionalProperties and properties are mutual exclusive")
	}
	if p := s.XPreserveUnknownFields; p != nil && !*p {
		c.invalid(path.Child("x-kubernetes-preserve-unknown-fields"), *p, "must be true or undefined")
	}
}

// below checks the schemas in s.
func (c *schemaChecker) below(s *props, at scope, path *field.Path) {
	// isRoot is not passed on: only the schema of the resource itself is the root.
	in := scope{meta: at.meta, noDefault: at.noDefault}
	if s.AdditionalProperties != nil {
		values := in
		if at.meta {
			// Pruning there would depend on the names of the fields in each object.
			values.noDefault = "inside additionalProperties applying to object metadata"
		}
		c.check(s.AdditionalProperties.Schema, values, path.Child("additionalProperties"))
	}
	for name, child := range properties(s.Properties) {
		inside := in
		if (at.isRoot || s.XEmbeddedResource) && isMetaMember(name) {
			inside.meta = true
			if at.isRoot {
				inside.noDefault = "in top-level " + name
			}
		}
		c.check(child, inside, path.Child("properties").Key(name))
	}
	c.check(s.Not, in, path.Child("not"))
	for _, list := range [...]struct {
		name    string
		schemas []props
	}{{"allOf", s.AllOf}, {"oneOf", s.OneOf}, {"anyOf", s.AnyOf}} {
		for i := range list.schemas {
			c.check(&list.schemas[i], in, path.Child(list.name).Index(i))
		}
	}
	for name, child := range properties(s.Definitions) {
		c.check(child, in, path.Child("definitions").Key(name))
	}
	if s.Items != nil {
		c.check(s.Items.Schema, in, path.Child("items"))
		for i := range s.Items.JSONSchemas {
			c.check(&s.Items.JSONSchemas[i], in, path.Child("items").Index(i))
		}
	}
	for name, d := range s.Dependencies {
		c.check(d.Schema, in, path.Child("dependencies").Key(name))
	}
}

// typeMustBe requires the type of values that an extension is about. An extension on a schema with another type,
// or without one, would never have an effect.
func (c *schemaChecker) typeMustBe(want string, s *props, because string, path *field.Path) {
	why := fmt.Sprintf("must be %s if %s is specified", want, because)
	switch s.Type {
	case want:
	case "":
		c.required(path.Child("type"), why)
	default:
		c.invalid(path.Child("type"), s.Type, why)
	}
}

func (c *schemaChecker) mapType(s *props, path *field.Path) {
	if s.XMapType == nil {
		return
	}
	c.typeMustBe("object", s, "x-kubernetes-map-type", path)
	c.add(field.OneOf(path.Child("x-kubernetes-map-type"), *s.XMapType, "atomic", "granular"))
}

// listType validates x-kubernetes-list-type, by which server-side apply merges lists. The items of a set are
// compared as a whole, so they have to be scalars or atomic.
func (c *schemaChecker) listType(s *props, path *field.Path) {
	if s.XListType == nil {
		return
	}
	c.typeMustBe("array", s, "x-kubernetes-list-type", path)
	if s.Type == "array" {
		if err := nonAtomicSetError(s, path); err != nil && !c.earlier.has(hasNonAtomicSet) {
			c.add(field.ErrorList{err})
		}
	}
	c.add(field.OneOf(path.Child("x-kubernetes-list-type"), *s.XListType, "atomic", "set", "map"))
}

// nonAtomicSetError returns an error if s is a set whose items are not compared as a whole,
// nil otherwise.
// A list without a type is atomic, so only another explicit type is refused. An object without a map type is
// granular and refused.
func nonAtomicSetError(s *props, path *field.Path) *field.Error {
	items := itemsOf(s)
	if s.XListType == nil || *s.XListType != "set" || items == nil {
		return nil
	}
	const why = "must be atomic as item of a list with x-kubernetes-list-type=set"
	switch {
	case items.Type == "array" && items.XListType != nil && *items.XListType != "atomic":
		return field.Invalid(path.Child("items", "x-kubernetes-list-type"), *items.XListType, why)
	case items.Type == "object" && (items.XMapType == nil || *items.XMapType != "atomic"):
		// The value in kube-apiserver's error is the list type.
		return field.Invalid(path.Child("items", "x-kubernetes-map-type"), items.XListType, why)
	}
	return nil
}

// listKeys validates x-kubernetes-list-map-keys, the fields that identify the items of a list with the type map.
// For example, [name] needs items of type object with the scalar property name.
func (c *schemaChecker) listKeys(s *props, path *field.Path) {
	isMap := s.XListType != nil && *s.XListType == "map"
	// Only the type of the list is reported here. Without the type map the keys have no meaning, so they are not
	// compared with the items.
	if len(s.XListMapKeys) > 0 && !isMap {
		const why = "must be map if x-kubernetes-list-map-keys is non-empty"
		if s.XListType == nil {
			c.required(path.Child("x-kubernetes-list-type"), why)
		} else {
			c.invalid(path.Child("x-kubernetes-list-type"), *s.XListType, why)
		}
	}
	if !isMap {
		return
	}
	c.add(field.RequiredIf(len(s.XListMapKeys) == 0, path.Child("x-kubernetes-list-map-keys"),
		"must not be empty if x-kubernetes-list-type is map"))
	switch items := itemsOf(s); {
	case s.Items == nil:
		c.required(path.Child("items"), "must have a schema if x-kubernetes-list-type is map")
	case items == nil:
		c.invalid(path.Child("items"), internalItems(s.Items),
			"must only have a single schema if x-kubernetes-list-type is map")
	case items.Type != "object":
		c.invalid(path.Child("items", "type"), items.Type, "must be object if parent array's x-kubernetes-list-type is map")
	default:
		c.keysOf(s.XListMapKeys, items, path)
	}
}

// keysOf validates that the keys are different scalar properties of the items. managedFields names an item by its
// keys, such as k:{"name":"a"}.
func (c *schemaChecker) keysOf(keys []string, items *props, path *field.Path) {
	for i, key := range keys {
		p, found := items.Properties[key]
		switch {
		case !found:
			c.invalid(path.Child("x-kubernetes-list-map-keys"), keys, "entries must all be names of item properties")
		case p.Type == "array" || p.Type == "object":
			// The value in kube-apiserver's error is the type of the item.
			c.invalid(path.Child("items", "properties").Key(key).Child("type"), items.Type,
				"must be a scalar type if parent array's x-kubernetes-list-type is map")
		}
		c.add(field.InvalidIf(slices.Contains(keys[:i], key), path.Child("x-kubernetes-list-map-keys"), keys,
			"must not contain duplicate entries"))
	}
}

// validateListItems returns errors for the schema of a set's or map's items if it does not
// guarantee that items can be distinguished, because an item can be null or a key can be
// missing.
// For example, a list with the key name needs items with {required: [name]} or a default of name. Without it, two
// items could both lack the key and be the same item.
func validateListItems(s *props, path *field.Path) field.ErrorList {
	items := itemsOf(s)
	if items == nil || s.XListType == nil || (*s.XListType != "set" && *s.XListType != "map") {
		return nil
	}
	var errs field.ErrorList
	if items.Nullable {
		errs = append(errs,
			field.Forbidden(path.Child("items", "nullable"), "cannot be nullable when x-kubernetes-list-type is "+*s.XListType))
	}
	if *s.XListType != "map" {
		return errs
	}
	for _, key := range s.XListMapKeys {
		p, found := items.Properties[key]
		if !found {
			continue
		}
		at := path.Child("items", "properties").Key(key)
		errs = append(errs, field.RequiredIf(p.Default == nil && !slices.Contains(items.Required, key), at.Child("default"),
			"this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property")...)
		errs = append(errs, field.ForbiddenIf(p.Nullable, at.Child("nullable"),
			"this property is in x-kubernetes-list-map-keys, so it cannot be nullable")...)
	}
	return errs
}
