package apiextensions

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
	"github.com/keelson-dev/keelson/internal/object/structuralschema/celrules"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// validateDefaults returns an error for each default in the schema of a resource that is not
// valid by the schema that it is in.
func (c *specChecker) validateDefaults(s *structuralschema.Schema, path *field.Path) field.ErrorList {
	d := defaultChecker{ctx: c.ctx, earlier: c.previous, budget: celrules.Budget}
	d.node(s, s, nil, path)
	return d.errs
}

// defaultChecker validates the defaults of one schema. All of them share one CEL budget, so that a definition
// with many defaults cannot keep the server busy. When it is used up, the remaining defaults are not checked.
type defaultChecker struct {
	ctx     context.Context
	earlier previousDefinition
	// budget is the remaining CEL cost for evaluating rules.
	budget int64
	errs   field.ErrorList
}

// node checks the default of s and of all schemas below it. resource is the schema of the
// object that contains s. inMeta is the path from that object to s if s is in its kind,
// apiVersion or metadata, and nil otherwise.
func (d *defaultChecker) node(s, resource *structuralschema.Schema, inMeta *metadataPath, path *field.Path) {
	if s == nil || d.budget < 0 {
		return
	}
	// An embedded resource is an object of its own: its metadata and its defaults are judged by its own schema.
	if s.EmbeddedResource {
		resource, inMeta = s, nil
	}
	if s.HasDefault {
		d.value(s, resource, inMeta, path.Child("default"))
	}
	// The values of maps cannot have defaults.
	d.node(s.Items, resource, inMeta.item(), path.Child("items"))
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		below := inMeta.member(name)
		if below == nil && s.EmbeddedResource && isMetaMember(name) {
			below = &metadataPath{name: name}
		}
		d.node(s.Properties[name], resource, below, path.Child("properties").Key(name))
	}
}

// value checks the default of s itself. If it contains resources, only the fields of their metadata
// that have the right types are checked and shown in errors.
func (d *defaultChecker) value(s, resource *structuralschema.Schema, inMeta *metadataPath, path *field.Path) {
	value := runtime.DeepCopyJSONValue(s.Default)
	var errs field.ErrorList
	if inMeta != nil {
		errs = validateMetadataDefault(value, resource, inMeta, path)
	} else {
		errs = validateEmbeddedMetadata(s, value, path)
		d.errs = append(d.errs, field.InvalidIf(!isPruned(s) && !hasUnprunedDefaults(d.earlier), path, value,
			"must not have unknown fields")...)
	}
	if len(errs) == 0 {
		errs = s.Validate(path.K8s(), value)
	}
	if len(errs) == 0 {
		errs = d.rules(s, value, s == resource, path)
	}
	d.errs = append(d.errs, errs...)
}

// rules evaluates the validation rules for a default, once as a new value and once as an
// unchanged one.
func (d *defaultChecker) rules(
	s *structuralschema.Schema, value any, isResource bool, path *field.Path,
) field.ErrorList {
	// Both evaluations are needed. Rules with oldSelf are evaluated only if there is an old value (KEP-2876),
	// unless optionalOldSelf is set, and the default may appear in new objects and in updated ones.
	v := celrules.Compile(s, isResource)
	kept := v.Evaluate(d.ctx, path.K8s(), value, value, d.budget)
	errs, left := append(kept.Errors, kept.Ratcheted...), kept.Remaining
	if len(errs) == 0 {
		var afresh int64
		errs, afresh = v.Validate(d.ctx, path.K8s(), value, nil, d.budget)
		left = min(left, afresh)
	}
	d.budget = left
	return errs
}

// validateEmbeddedMetadata returns errors for the embedded resources in a default. It may
// change value.
func validateEmbeddedMetadata(s *structuralschema.Schema, value any, path *field.Path) field.ErrorList {
	if err := s.Coerce(path.K8s(), value); err != nil {
		return field.ErrorList{err}
	}
	return s.ValidateEmbedded(path.K8s(), value)
}

// validateMetadataDefault puts a default of a metadata field into an otherwise empty object, at the place of the field, and
// returns an error if the metadata of that object is not valid.
func validateMetadataDefault(
	value any, resource *structuralschema.Schema, place *metadataPath, path *field.Path,
) field.ErrorList {
	object := place.around(runtime.DeepCopyJSONValue(value))
	// An object without apiVersion and kind would be refused for that, which says nothing about the default.
	// Which ones it has does not matter.
	for name, text := range map[string]string{"apiVersion": "validation/v1", "kind": "Validation"} {
		if _, found := object[name]; !found {
			object[name] = text
		}
	}
	if errs := validateEmbeddedMetadata(resource, object, nil); len(errs) > 0 {
		return field.ErrorList{
			field.Invalid(path, value, fmt.Sprintf("must result in valid metadata: %v", errs.ToAggregate()))}
	}
	return nil
}

// hasUnprunedDefaults reports whether a default of the previous definition has fields that its
// schema does not specify.
func hasUnprunedDefaults(e previousDefinition) bool {
	return slices.ContainsFunc(e.schemas(), func(s *structuralschema.Schema) bool { return hasUnprunedDefault(s, false) })
}

// hasUnprunedDefault reports whether s or a schema below it has such a default. Metadata of
// objects is not pruned.
func hasUnprunedDefault(s *structuralschema.Schema, inMeta bool) bool {
	if s == nil {
		return false
	}
	inMeta = inMeta && !s.EmbeddedResource
	if s.HasDefault && !inMeta && !isPruned(s) || hasUnprunedDefault(s.Items, inMeta) ||
		hasUnprunedDefault(s.AdditionalProperties, inMeta) {
		return true
	}
	for name, p := range s.Properties {
		if hasUnprunedDefault(p, inMeta || s.EmbeddedResource && isMetaMember(name)) {
			return true
		}
	}
	return false
}

// isMetaMember reports whether all objects have a member of that name.
func isMetaMember(name string) bool {
	return name == "metadata" || name == "apiVersion" || name == "kind"
}

// isPruned reports whether the default of s has only fields that s specifies.
func isPruned(s *structuralschema.Schema) bool {
	pruned := runtime.DeepCopyJSONValue(s.Default)
	s.Prune(pruned, s.EmbeddedResource, false)
	return reflect.DeepEqual(pruned, s.Default)
}

// A metadataPath is the path from an object down to a value in it. nil is not a path.
type metadataPath struct {
	parent *metadataPath
	name   string
	isItem bool
}

// member and item return nil for nil, so that the path stays nil outside of metadata.
func (p *metadataPath) member(name string) *metadataPath {
	if p == nil {
		return nil
	}
	return &metadataPath{parent: p, name: name}
}

func (p *metadataPath) item() *metadataPath {
	if p == nil {
		return nil
	}
	return &metadataPath{parent: p, isItem: true}
}

// around returns an object that has only the given value, at the path. The first step of the
// path has to be a member.
func (p *metadataPath) around(value any) map[string]any {
	if p.isItem {
		return p.parent.around([]any{value})
	}
	object := map[string]any{p.name: value}
	if p.parent == nil {
		return object
	}
	return p.parent.around(object)
}
