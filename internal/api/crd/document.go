package crd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// documents implements registry.Documents for one version.
type documents struct {
	*kinds
	version string
	// head is how an object of this version begins if this server encoded it: this server writes apiVersion first.
	head []byte
}

func newDocuments(k *kinds, version string) *documents {
	text, _ := json.Marshal(schema.GroupVersion{Group: k.group, Version: version}.String()) // no error: a string
	return &documents{kinds: k, version: version, head: fmt.Appendf(nil, `{"apiVersion":%s,`, text)}
}

// Is implements registry.Documents.
func (d *documents) Is(doc []byte) bool {
	if bytes.HasPrefix(doc, d.head) {
		return true
	}
	version, err := versionOf(doc)
	return err == nil && version == d.version
}

// versionOf returns the version in the apiVersion of an encoded object.
func versionOf(doc []byte) (string, error) {
	apiVersion, _, err := wire.KindOf(doc)
	if err != nil {
		return "", err
	}
	gv, err := schema.ParseGroupVersion(string(apiVersion))
	return gv.Version, err
}

// Normal implements registry.Documents. Objects that this server wrote since the definition took effect are already
// in normal form if no other process writes to the store.
func (d *documents) Normal(doc []byte, revision int64) ([]byte, error) {
	if d.IsNormal(revision) {
		return doc, nil
	}
	tree, err := decodeTree(doc)
	if err != nil {
		return nil, err
	}
	version, err := versionOf(doc)
	if err != nil {
		return nil, err
	}
	v := d.byName[version]
	if v == nil {
		// The definition no longer has this version, so there is no schema to prune and default by.
		return doc, nil
	}
	if err := v.read(tree); err != nil {
		return nil, err
	}
	return scheme.MarshalTree(tree)
}

// conversionPeriod is the period of registry.Documents: a conversion, and a row of a table that is made from it,
// are used in the period in which the webhook was called and in the next one. So a client sees a result of the
// conversion webhook that is at most 40 seconds old.
const conversionPeriod = 20 * time.Second

// Period implements registry.Documents. Without a webhook, a conversion depends on nothing but the definition.
func (k *kinds) Period() uint16 {
	if !k.webhook {
		return 0
	}
	return registry.PeriodAt(k.now(), conversionPeriod)
}

// IsNormal reports whether an object written at revision is stored in normal form. revision is 0 for an object that
// has not been written yet.
func (k *kinds) IsNormal(revision int64) bool {
	if k.defaultsReturn {
		return false
	}
	return revision == 0 || k.exclusive && revision > k.normalSince.Load()
}

// Decode implements registry.Documents.
func (d *documents) Decode(doc []byte) (registry.Object, error) { return decodeTree(doc) }

func decodeTree(doc []byte) (*unstructured.Unstructured, error) {
	tree := &unstructured.Unstructured{}
	return tree, scheme.UnmarshalTree(doc, &tree.Object)
}

// Encode implements registry.Documents. It prunes unknown fields and nulls. Server-side apply keeps them until
// Encode is called, because it validates them and records their owners.
func (d *documents) Encode(ctx context.Context, obj registry.Object) ([]byte, error) {
	tree := obj.(*unstructured.Unstructured)
	if tree.GroupVersionKind().Version == d.storage {
		if v := d.byName[d.storage]; v != nil {
			if _, err := v.coerce(tree, false); err != nil {
				return nil, err
			}
		}
		return scheme.MarshalTree(tree)
	}
	out, err := d.convert(ctx, []*unstructured.Unstructured{tree}, d.storage)
	if err != nil {
		return nil, err
	}
	return scheme.MarshalTree(out[0])
}

// Convert implements registry.Documents.
func (d *documents) Convert(ctx context.Context, docs [][]byte) ([][]byte, error) {
	trees := make([]*unstructured.Unstructured, len(docs))
	for i, doc := range docs {
		var err error
		if trees[i], err = decodeTree(doc); err != nil {
			return nil, err
		}
	}
	trees, err := d.convert(ctx, trees, d.version)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(trees))
	for i, tree := range trees {
		if out[i], err = scheme.MarshalTree(tree); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// convert converts objects, which it owns, to a version and prunes them by the schema of that version.
func (k *kinds) convert(
	ctx context.Context, trees []*unstructured.Unstructured, version string,
) ([]*unstructured.Unstructured, error) {
	out, err := k.converter.Convert(ctx, trees, schema.GroupVersion{Group: k.group, Version: version})
	if err != nil {
		return nil, apierr.New(http.StatusInternalServerError, "", err.Error())
	}
	if v := k.byName[version]; v != nil {
		for _, tree := range out {
			if _, err := v.coerce(tree, false); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
