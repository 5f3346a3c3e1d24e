package structuralschema

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// DecodeOptions are the options of Decode.
type DecodeOptions struct {
	// Report makes Decode return the paths of unknown fields.
	Report bool
	// Lenient drops metadata fields of a wrong type instead of returning an error, and sets a missing generation to
	// 1. It is used for objects from the store, which may be older than the checks of metadata.
	Lenient bool
	// Preserve keeps unknown fields and nulls (spec.preserveUnknownFields of the definition).
	Preserve bool
}

// Decode brings an object from a client, a converter or the store into the form in which a built-in object would be
// after decoding into its Go type. It changes object in place: its metadata and that of embedded resources gets the
// fields and types of ObjectMeta, unknown fields are removed, and so are nulls of fields that are not nullable. It
// does not set defaults. It returns the paths of unknown fields in the order of the errors of strict decoding.
// After an error the object is partly changed and must not be used.
func (s *Schema) Decode(object map[string]any, o DecodeOptions) (unknown []string, err error) {
	d := metadataDecoder{report: o.Report, lenient: o.Lenient}
	if err := d.metadata(object, nil); err != nil {
		return nil, err
	}
	if meta, ok := object["metadata"].(map[string]any); ok && o.Lenient && meta["generation"] == nil {
		meta["generation"] = int64(1)
	}
	unknown, d.unknown = d.unknown, nil
	if !o.Preserve {
		unknown = append(unknown, s.Prune(object, true, o.Report)...)
		s.DropNulls(object)
	}
	if err := s.coerceEmbedded(object, s != nil && s.EmbeddedResource, &d); err != nil {
		return nil, err
	}
	slices.Sort(d.unknown)
	return append(unknown, d.unknown...), nil
}

// metadataDecoder is a walk over an object that decodes metadata.
type metadataDecoder struct {
	report, lenient bool
	unknown         []string
}

// coerceEmbedded decodes the metadata of the embedded resources in x, and of x itself if resource is true.
func (s *Schema) coerceEmbedded(x any, resource bool, d *metadataDecoder) error {
	if s == nil || s.below&hasEmbedded == 0 && !resource {
		return nil
	}
	if err := d.value(x, s, resource, nil); err != nil {
		return err
	}
	return nil
}

func (d *metadataDecoder) value(x any, s *Schema, resource bool, at *field.Path) *field.Error {
	switch x := x.(type) {
	case map[string]any:
		for _, name := range sortedKeys(x) {
			if resource && typeAndObjectMeta(name) {
				if err := d.common(x, name, at); err != nil {
					return err
				}
			}
			if sub := s.Properties[name]; sub != nil {
				if err := d.below(x[name], sub, at.Child(name)); err != nil {
					return err
				}
			} else if s.AdditionalProperties != nil {
				if err := d.below(x[name], s.AdditionalProperties, at.Key(name)); err != nil {
					return err
				}
			}
		}
	case []any:
		for i, v := range x {
			if err := d.below(v, s.Items, at.Index(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *metadataDecoder) below(x any, s *Schema, at *field.Path) *field.Error {
	if s == nil || s.below&hasEmbedded == 0 {
		return nil
	}
	return d.value(x, s, s.EmbeddedResource, at)
}

// common converts one of the fields apiVersion, kind and metadata of a resource to its type.
func (d *metadataDecoder) common(resource map[string]any, name string, at *field.Path) *field.Error {
	v := resource[name]
	if name == "metadata" {
		if err := d.metadata(resource, at); err != nil && !d.lenient {
			return field.Invalid(at.Child("metadata"), v, err.Error())
		}
		return nil
	}
	if _, ok := v.(string); ok {
		return nil
	}
	if !d.lenient {
		return field.Invalid(at.Child(name), v, "must be a string")
	}
	delete(resource, name)
	return nil
}

// metadata decodes the metadata of a resource in place. at is the path of the resource.
func (d *metadataDecoder) metadata(resource map[string]any, at *field.Path) error {
	v, found := resource["metadata"]
	if !found {
		return nil
	}
	if m, ok := v.(map[string]any); ok && plainObjectMeta(m) {
		return nil
	}
	meta, err := d.decode(v, at)
	if err != nil {
		return err
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(meta)
	if err != nil {
		return err
	}
	resource["metadata"] = tree
	return nil
}

// decode returns a tree as an ObjectMeta. If d is lenient, fields of a wrong type are left out.
func (d *metadataDecoder) decode(tree any, at *field.Path) (*metav1.ObjectMeta, error) {
	meta := &metav1.ObjectMeta{}
	err := d.decodeInto(tree, meta, at)
	if err == nil || !d.lenient {
		return meta, err
	}
	fields, ok := tree.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid metadata: expected object, got %T", tree)
	}
	meta = &metav1.ObjectMeta{}
	for _, name := range sortedKeys(fields) {
		one := map[string]any{name: fields[name]}
		if d.decodeInto(one, &metav1.ObjectMeta{}, at) == nil {
			report := d.report
			d.report = false // decoding into the unused ObjectMeta above has reported it
			err := d.decodeInto(one, meta, at)
			d.report = report
			if err != nil {
				return nil, err
			}
		}
	}
	return meta, nil
}

func (d *metadataDecoder) decodeInto(tree any, meta *metav1.ObjectMeta, at *field.Path) error {
	text, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	if !d.report {
		return json.Unmarshal(text, meta)
	}
	strict, err := kjson.UnmarshalStrict(text, meta)
	if err != nil {
		return err
	}
	for _, e := range strict {
		if e, ok := e.(kjson.FieldError); ok {
			d.unknown = append(d.unknown, at.Child("metadata").String()+"."+e.FieldPath())
		}
	}
	return nil
}

// plainObjectMeta reports whether decoding m as ObjectMeta and encoding it again would give m. It may return false
// for metadata that would stay the same, but returns true for all frequent cases; Decode is then much cheaper.
func plainObjectMeta(m map[string]any) bool {
	for name, v := range m {
		ok := false
		switch name {
		case "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion":
			ok = isText(v)
		case "generation":
			n, is := v.(int64)
			ok = is && n != 0
		case "deletionGracePeriodSeconds":
			_, ok = v.(int64)
		case "creationTimestamp", "deletionTimestamp":
			ok = isTime(v)
		case "labels", "annotations":
			ok = isTextMap(v)
		case "finalizers":
			ok = isList(v, func(v any) bool { _, is := v.(string); return is })
		case "ownerReferences":
			ok = isList(v, isOwnerReference)
		case "managedFields":
			ok = isList(v, isManagedFields)
		}
		if !ok {
			return false
		}
	}
	return true
}

func isText(v any) bool { s, ok := v.(string); return ok && s != "" }

func isTime(v any) bool {
	s, ok := v.(string)
	if !ok || len(s) != len("2006-01-02T15:04:05Z") || s[len(s)-1] != 'Z' || s[10] != 'T' {
		return false
	}
	t, err := time.Parse(time.RFC3339, s)
	return err == nil && !t.IsZero()
}

func isTextMap(v any) bool {
	m, ok := v.(map[string]any)
	for _, v := range m {
		if _, is := v.(string); !is {
			return false
		}
	}
	return ok && len(m) > 0
}

func isList(v any, item func(any) bool) bool {
	l, ok := v.([]any)
	for _, v := range l {
		if !item(v) {
			return false
		}
	}
	return ok && len(l) > 0
}

func isOwnerReference(v any) bool {
	m, ok := v.(map[string]any)
	texts := 0
	for name, v := range m {
		is := false
		switch name {
		case "apiVersion", "kind", "name", "uid":
			_, is = v.(string)
			texts++
		case "controller", "blockOwnerDeletion":
			_, is = v.(bool)
		}
		if !is {
			return false
		}
	}
	return ok && texts == 4
}

func isManagedFields(v any) bool {
	m, ok := v.(map[string]any)
	for name, v := range m {
		is := false
		switch name {
		case "manager", "operation", "apiVersion", "fieldsType", "subresource":
			is = isText(v)
		case "time":
			is = isTime(v)
		case "fieldsV1":
			is = isFields(v)
		}
		if !is {
			return false
		}
	}
	return ok
}

// isFields reports whether v contains only objects, as the value of fieldsV1 does.
func isFields(v any) bool {
	m, ok := v.(map[string]any)
	for _, v := range m {
		if !isFields(v) {
			return false
		}
	}
	return ok
}
