package apiextensions

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
)

// benchmarked is a definition of 40 fields, the size of an ordinary one.
func benchmarked(tb testing.TB, extra map[string]any) *definition {
	fields := map[string]any{}
	for i := range 10 {
		fields[fmt.Sprintf("name%d", i)] = map[string]any{"type": "string", "maxLength": 64, "pattern": "^[a-z]+$",
			"description": "a name"}
		fields[fmt.Sprintf("count%d", i)] = map[string]any{"type": "integer", "minimum": 0, "default": i}
		fields[fmt.Sprintf("labels%d", i)] = map[string]any{"type": "object",
			"additionalProperties": map[string]any{"type": "string"}}
		fields[fmt.Sprintf("list%d", i)] = map[string]any{"type": "array", "items": map[string]any{"type": "object",
			"required":   []any{"key"},
			"properties": map[string]any{"key": map[string]any{"type": "string"}, "value": map[string]any{"type": "string"}}},
			"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"key"}}
	}
	spec := map[string]any{"type": "object", "properties": fields}
	for name, value := range extra {
		spec[name] = value
	}
	document, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{"kind": "Widget", "plural": "widgets"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": spec}}},
				"subresources": map[string]any{"status": map[string]any{}},
			}},
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	d := decodeDefinition(tb, document)
	recordStoredVersion(d)
	return d
}

func BenchmarkValidate(b *testing.B) {
	for name, extra := range map[string]map[string]any{
		"plain": nil,
		"rules": {"x-kubernetes-validations": []any{
			map[string]any{"rule": "self.count1 <= self.count2"}, map[string]any{"rule": "self.name1 == oldSelf.name1"},
		}},
	} {
		b.Run(name, func(b *testing.B) {
			d := benchmarked(b, extra)
			for b.Loop() {
				if errs := validate(context.Background(), d, nil); len(errs) > 0 {
					b.Fatal(errs)
				}
			}
		})
	}
}

func BenchmarkDefault(b *testing.B) {
	d := benchmarked(b, nil)
	for b.Loop() {
		defaultDefinition(d)
	}
}

func BenchmarkEncodeStored(b *testing.B) {
	d := benchmarked(b, nil)
	for b.Loop() {
		if _, err := encodeStored(d); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeStored(b *testing.B) {
	document, err := encodeStored(benchmarked(b, nil))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := decodeStored(document); err != nil {
			b.Fatal(err)
		}
	}
}
