package crd

import (
	"context"
	"encoding/json"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/structural"
	"github.com/keelson-dev/keelson/structural/rules"
)

// unmarshalSpec decodes a specification, schemas included.
func unmarshalSpec(text string, spec *apiextensionsv1.CustomResourceDefinitionSpec) error {
	return json.Unmarshal([]byte(text), spec)
}

// coerce drops from a tree that a client or a webhook sent what the schema does not
// know; unknown are the paths of that, if track is set.
func (c *compiledVersion) coerce(tree *unstructured.Unstructured, track bool) (unknown []string, err error) {
	return c.schema.Decode(tree.Object, structural.DecodeOptions{Report: track, Preserve: c.preserve})
}

// coerce is that of the version that a tree says it is of, which a request to c sent:
// one that the definition does not have knows no fields, and of another kind only
// metadata are known.
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
		return (*structural.Schema)(nil).Decode(tree.Object, structural.DecodeOptions{Report: track, Preserve: true})
	}
	if other := k.byName[gv.Version]; other != nil {
		return other.coerce(tree, track)
	}
	return (*structural.Schema)(nil).Decode(tree.Object, structural.DecodeOptions{Report: track, Preserve: c.preserve})
}

// setDefaults sets the defaults of the schema.
func (c *compiledVersion) setDefaults(tree *unstructured.Unstructured) {
	c.schema.SetDefaults(tree.Object)
}

// read brings a tree from the store to its normal form. Metadata that cannot be
// read is dropped: it was written before there were checks.
func (c *compiledVersion) read(tree *unstructured.Unstructured) error {
	if _, err := c.schema.Decode(tree.Object, structural.DecodeOptions{Lenient: true, Preserve: c.preserve}); err != nil {
		return err
	}
	if tree.GetGeneration() == 0 {
		tree.SetGeneration(1)
	}
	c.schema.SetDefaults(tree.Object)
	return nil
}

// validateRules evaluates the rules, unless what is wrong already would make them
// meet values that they are not made for.
func (c *compiledVersion) validateRules(ctx context.Context, wrong field.ErrorList, obj, old any) field.ErrorList {
	if c.rules == nil {
		return nil
	}
	for _, err := range wrong {
		if blocks(err) {
			return field.ErrorList{notChecked}
		}
	}
	result := c.rules.Evaluate(ctx, nil, obj, old, rules.Budget)
	for _, err := range result.Ratcheted {
		request.Warn(ctx, err.Error())
	}
	return result.Errors
}
