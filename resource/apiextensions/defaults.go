package apiextensions

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/structural"
	"github.com/keelson-dev/keelson/structural/rules"
)

// defaultProblems says which defaults of a whole resource's schema are not valid by
// the schema that they are in.
func (c *specChecker) defaultProblems(s *structural.Schema, path *field.Path) field.ErrorList {
	d := defaultChecker{ctx: c.ctx, earlier: c.earlier, budget: rules.Budget}
	d.node(s, s, nil, path)
	return d.errs
}

type defaultChecker struct {
	ctx     context.Context
	earlier earlier
	// budget is what is left for evaluating rules.
	budget int64
	errs   field.ErrorList
}

// node checks the default of s and of what is below. resource is the schema of the
// object around it; inMeta leads from there to s if that is within its kind,
// apiVersion or metadata.
func (d *defaultChecker) node(s, resource *structural.Schema, inMeta *trail, path *field.Path) {
	if s == nil || d.budget < 0 {
		return
	}
	if s.EmbeddedResource {
		resource, inMeta = s, nil
	}
	if s.HasDefault {
		d.value(s, resource, inMeta, path.Child("default"))
	}
	// There are no defaults in the values of maps.
	d.node(s.Items, resource, inMeta.item(), path.Child("items"))
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		below := inMeta.member(name)
		if below == nil && s.EmbeddedResource && isMeta(name) {
			below = &trail{name: name}
		}
		d.node(s.Properties[name], resource, below, path.Child("properties").Key(name))
	}
}

// value checks the default of s itself. The metadata of resources in it counts, and is
// shown, as far as it has the fields and types of metadata.
func (d *defaultChecker) value(s, resource *structural.Schema, inMeta *trail, path *field.Path) {
	value := runtime.DeepCopyJSONValue(s.Default)
	var errs field.ErrorList
	if inMeta != nil {
		errs = metadataProblems(value, resource, inMeta, path)
	} else {
		errs = embeddedProblems(s, value, path)
		if !isPruned(s) && !hasUnprunedDefaults(d.earlier) {
			d.errs = append(d.errs, field.Invalid(path, value, "must not have unknown fields"))
		}
	}
	if len(errs) == 0 {
		errs = s.Validate(path, value)
	}
	if len(errs) == 0 {
		errs = d.rules(s, value, s == resource, path)
	}
	d.errs = append(d.errs, errs...)
}

// rules evaluates the rules for a default: as a value that stays as it is, and as
// one that is new.
func (d *defaultChecker) rules(s *structural.Schema, value any, isResource bool, path *field.Path) field.ErrorList {
	v := rules.Compile(s, isResource)
	kept := v.Evaluate(d.ctx, path, value, value, d.budget)
	errs, left := append(kept.Errors, kept.Ratcheted...), kept.Remaining
	if len(errs) == 0 {
		var afresh int64
		errs, afresh = v.Validate(d.ctx, path, value, nil, d.budget)
		left = min(left, afresh)
	}
	d.budget = left
	return errs
}

// embeddedProblems says what is wrong with the embedded resources in a default,
// which may be changed.
func embeddedProblems(s *structural.Schema, value any, path *field.Path) field.ErrorList {
	if err := s.Coerce(path, value); err != nil {
		return field.ErrorList{err}
	}
	return s.ValidateEmbedded(path, value)
}

// metadataProblems says why an object of the resource's schema with the default in
// its place, and nothing else, has no valid metadata.
func metadataProblems(value any, resource *structural.Schema, place *trail, path *field.Path) field.ErrorList {
	object := place.around(runtime.DeepCopyJSONValue(value))
	for name, text := range map[string]string{"apiVersion": "validation/v1", "kind": "Validation"} {
		if _, found := object[name]; !found {
			object[name] = text
		}
	}
	if errs := embeddedProblems(resource, object, nil); len(errs) > 0 {
		return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("must result in valid metadata: %v", errs.ToAggregate()))}
	}
	return nil
}

// hasUnprunedDefaults says that a default of the earlier definition has fields that
// its schema does not specify.
func hasUnprunedDefaults(e earlier) bool {
	return slices.ContainsFunc(e.schemas(), func(s *structural.Schema) bool { return anyUnpruned(s, false) })
}

// anyUnpruned looks for one in s and what is below. Within the metadata of an object
// nothing is pruned.
func anyUnpruned(s *structural.Schema, inMeta bool) bool {
	if s == nil {
		return false
	}
	inMeta = inMeta && !s.EmbeddedResource
	if s.HasDefault && !inMeta && !isPruned(s) || anyUnpruned(s.Items, inMeta) || anyUnpruned(s.AdditionalProperties, inMeta) {
		return true
	}
	for name, p := range s.Properties {
		if anyUnpruned(p, inMeta || s.EmbeddedResource && isMeta(name)) {
			return true
		}
	}
	return false
}

// isMeta says that a member is one that all objects have.
func isMeta(name string) bool { return name == "metadata" || name == "apiVersion" || name == "kind" }

// isPruned says that the default of s has no fields that s does not specify.
func isPruned(s *structural.Schema) bool {
	pruned := runtime.DeepCopyJSONValue(s.Default)
	s.Prune(pruned, s.EmbeddedResource, false)
	return reflect.DeepEqual(pruned, s.Default)
}

// A trail leads from an object down to a value in it; nil leads nowhere.
type trail struct {
	parent *trail
	name   string
	isItem bool
}

func (t *trail) member(name string) *trail {
	if t == nil {
		return nil
	}
	return &trail{parent: t, name: name}
}

func (t *trail) item() *trail {
	if t == nil {
		return nil
	}
	return &trail{parent: t, isItem: true}
}

// around makes the object that the trail leads through, with value at its end. The
// first step is always a member.
func (t *trail) around(value any) map[string]any {
	if t.isItem {
		return t.parent.around([]any{value})
	}
	object := map[string]any{t.name: value}
	if t.parent == nil {
		return object
	}
	return t.parent.around(object)
}
