package structuralschema

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// widgetSchema has 40 fields on several levels, of frequent types.
func widgetSchema() string {
	var fields []string
	for i := range 12 {
		fields = append(fields,
			fmt.Sprintf(`"text%d": {"type": "string", "maxLength": 200, "minLength": 1}`, i),
			fmt.Sprintf(`"count%d": {"type": "integer", "minimum": 0, "maximum": 1000, "format": "int32"}`, i))
	}
	return `{"type": "object", "properties": {
		"spec": {"type": "object", "required": ["text0"], "properties": {` + strings.Join(fields, ", ") + `,
			"mode": {"type": "string", "enum": ["Fast", "Slow", "Never"], "default": "Slow"},
			"image": {"type": "string", "pattern": "^[a-z0-9./-]+(:[a-z0-9.]+)?$"},
			"ratio": {"type": "number"},
			"port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
			"labels": {"type": "object", "additionalProperties": {"type": "string"}},
			"items":
				{"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name"],
				"properties":
					{"name": {"type": "string", "maxLength": 63}, "value": {"type": "string"}, "weight": {"type": "integer", "default": 1}}}}}},
		"status": {"type": "object", "properties": {"phase": {"type": "string"},
			"conditions": {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}, "status": {"type": "string"}, "message": {"type": "string"}}}}}}}}`
}

// widget is about 4 KB of JSON that is valid by widgetSchema.
func widget() string {
	var fields, items []string
	for i := range 12 {
		fields = append(fields, fmt.Sprintf(`"text%d": %q, "count%d": %d`, i, strings.Repeat("word ", 25), i, i*10))
	}
	for i := range 20 {
		items = append(items, fmt.Sprintf(`{"name": "item-%d", "value": "value of it", "weight": %d}`, i, i))
	}
	return `{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default", "uid": "u", "resourceVersion": "5", "generation": 2,
		"creationTimestamp": "2020-01-02T03:04:05Z", "labels": {"a": "b", "c": "d"}},
		"spec":
			{` + strings.Join(fields, ", ") + `, "mode": "Fast", "image": "registry.example.com/a/b:1.2.3", "ratio": 0.5, "port": "http",
			"labels": {"x": "1", "y": "2", "z": "3"}, "items": [` + strings.Join(items, ", ") + `]},
		"status": {"phase": "Ready", "conditions": [{"type": "Ready", "status": "True", "message": "fine"}]}}`
}

func BenchmarkNew(b *testing.B) {
	props := propsOf(b, widgetSchema())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(props); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewShared(b *testing.B) {
	props := propsOf(b, widgetSchema())
	cache := NewCache()
	kept, err := cache.New(props)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if s, err := cache.New(props); err != nil || s != kept {
			b.Fatal(err, s == kept)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	s, object := schemaOf(b, widgetSchema()), tree(b, widget())
	b.ReportMetric(float64(len(text(b, object))), "bytes")
	b.ReportAllocs()
	for b.Loop() {
		if errs := s.Validate(nil, object); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

func BenchmarkValidateUpdate(b *testing.B) {
	s, object, old := schemaOf(b, widgetSchema()), tree(b, widget()), tree(b, widget())
	b.ReportAllocs()
	for b.Loop() {
		if errs := s.ValidateUpdate(nil, object, old); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	s, object := schemaOf(b, widgetSchema()), tree(b, widget())
	b.ReportAllocs()
	for b.Loop() {
		if unknown, err := s.Decode(object, DecodeOptions{Report: true}); err != nil || len(unknown) > 0 {
			b.Fatal(unknown, err)
		}
		s.SetDefaults(object)
	}
}

func BenchmarkValidateLists(b *testing.B) {
	s, object := schemaOf(b, widgetSchema()), tree(b, widget())
	b.ReportAllocs()
	for b.Loop() {
		if errs := s.ValidateLists(nil, object); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	text := []byte(widget())
	b.ReportAllocs()
	for b.Loop() {
		var out map[string]any
		if err := json.Unmarshal(text, &out); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMemory measures the memory of a schema alone, and of one that differs from another in one field.
func BenchmarkMemory(b *testing.B) {
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	const n = 200
	for b.Loop() {
		cache := NewCache()
		kept := make([]*Schema, 0, n)
		before := heap()
		for i := range n {
			s, err := cache.New(propsOf(b, strings.Replace(widgetSchema(), `"ratio"`, fmt.Sprintf(`"ratio%d"`, i), 1)))
			if err != nil {
				b.Fatal(err)
			}
			kept = append(kept, s)
			if i == 0 {
				b.ReportMetric(heap()-before, "first-B")
				before = heap()
			}
		}
		b.ReportMetric((heap()-before)/(n-1), "next-B")
		runtime.KeepAlive(kept)
	}
}
