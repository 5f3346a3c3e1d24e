package crd

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/structuralschema"
	"github.com/keelson-dev/keelson/internal/object/structuralschema/celrules"
)

// coerce prunes an object that a client or a webhook sent by the schema of the version. If track is true, it
// returns the paths of the unknown fields.
func (c *compiledVersion) coerce(tree *unstructured.Unstructured, track bool) (unknown []string, err error) {
	return c.schema.Decode(tree.Object, structuralschema.DecodeOptions{Report: track, Preserve: c.preserve})
}

// coerce prunes an object in a request to version c, by the schema of the version in the object's apiVersion. If
// the definition has no such version, no field is known. If the group or kind is another one, only metadata is
// decoded and nothing is pruned. It fails if apiVersion or kind is not a string or metadata has a wrong type.
func (k *kinds) coerce(c *compiledVersion, tree *unstructured.Unstructured, track bool) (unknown []string, err error) {
	for _, name := range []string{"kind", "apiVersion"} {
		if _, _, err := unstructured.NestedString(tree.Object, name); err != nil {
			return nil, err
		}
	}
	gv, err := schema.ParseGroupVersion(tree.GetAPIVersion())
	if err != nil {
		return nil, err
	}
	if gv.Group != c.gvk.Group || tree.GetKind() != c.gvk.Kind {
		return (*structuralschema.Schema)(nil).Decode(
			tree.Object, structuralschema.DecodeOptions{Report: track, Preserve: true},
		)
	}
	if other := k.byName[gv.Version]; other != nil {
		return other.coerce(tree, track)
	}
	return (*structuralschema.Schema)(nil).Decode(
		tree.Object, structuralschema.DecodeOptions{Report: track, Preserve: c.preserve},
	)
}

// read brings an object from the store to normal form: decoded, pruned and defaulted, with a generation. Metadata
// of a wrong type is dropped, because the object may be older than the validation of metadata.
func (c *compiledVersion) read(tree *unstructured.Unstructured) error {
	if _, err := c.schema.Decode(
		tree.Object, structuralschema.DecodeOptions{Lenient: true, Preserve: c.preserve},
	); err != nil {
		return err
	}
	if tree.GetGeneration() == 0 {
		tree.SetGeneration(1)
	}
	c.schema.SetDefaults(tree.Object)
	return nil
}

// validateRules evaluates the CEL rules of the schema, unless one of the errors found so far prevents it.
func (c *compiledVersion) validateRules(ctx context.Context, wrong field.ErrorList, obj, old any) field.ErrorList {
	if c.rules == nil {
		return nil
	}
	for _, err := range wrong {
		if preventsRules(err) {
			return field.ErrorList{rulesNotChecked}
		}
	}
	defer c.times.Evaluated(time.Now())
	result := c.rules.Evaluate(ctx, nil, obj, old, celrules.Budget)
	for _, err := range result.Ratcheted {
		request.Warn(ctx, err.Error())
	}
	return result.Errors
}
