package declare

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Internal is a value for an error message. kube-apiserver validates its internal
// types, which have no JSON names: fields of API structs are written with their
// Go names, and none is left out. Types of apimachinery (selectors, quantities,
// metadata) look as they do everywhere.
func Internal(v any) json.RawMessage {
	var w internalWriter
	w.write(reflect.ValueOf(v))
	return w.Bytes()
}

// Exactly is a text that differs where values do, also by an empty list in the
// place of none.
func Exactly(v any) string {
	w := internalWriter{all: true}
	w.write(reflect.ValueOf(v))
	return w.String()
}

type internalWriter struct {
	bytes.Buffer
	all bool // write apimachinery's structs by their Go names too
}

func (b *internalWriter) open(t reflect.Type) bool {
	return strings.HasPrefix(t.PkgPath(), "k8s.io/api/") || t.Implements(internalForm) || b.all && !t.Implements(marshaler)
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// Form is embedded in structs that give an API type the shape that it has in the internal
// version of kube-apiserver, where that is another.
type Form interface{ InternalForm() }

var internalForm = reflect.TypeFor[Form]()

// Immutable refuses a change of what may not be changed.
func Immutable(value, old any, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(value, old, path)
	for _, err := range errs {
		err.BadValue = Internal(value)
	}
	return errs
}

func (b *internalWriter) write(v reflect.Value) {
	if !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.IsNil() {
		b.WriteString("null")
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		b.write(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b.writeJSON(v)
			return
		}
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(',')
			}
			b.write(v.Index(i))
		}
		b.WriteByte(']')
	case reflect.Map:
		b.writeMap(v)
	case reflect.Struct:
		if !b.open(v.Type()) {
			b.writeJSON(v)
			return
		}
		b.WriteByte('{')
		first := true
		b.writeMembers(v, &first)
		b.WriteByte('}')
	default:
		b.writeJSON(v)
	}
}

func (b *internalWriter) writeMembers(v reflect.Value, first *bool) {
	for _, member := range membersOf(v.Type()) {
		if member.Anonymous {
			b.writeEmbedded(v.FieldByIndex(member.Index), first)
			continue
		}
		b.writeName(member.Name, first)
		b.write(v.FieldByIndex(member.Index))
	}
}

// writeEmbedded writes what is inlined: of metadata with its own names.
func (b *internalWriter) writeEmbedded(v reflect.Value, first *bool) {
	if b.open(v.Type()) {
		b.writeMembers(v, first)
		return
	}
	text, err := json.Marshal(v.Interface())
	if err != nil || len(text) <= len("{}") {
		return
	}
	if !*first {
		b.WriteByte(',')
	}
	*first = false
	b.Write(text[1 : len(text)-1])
}

func (b *internalWriter) writeName(name string, first *bool) {
	if !*first {
		b.WriteByte(',')
	}
	*first = false
	b.WriteByte('"')
	b.WriteString(name)
	b.WriteString(`":`)
}

func (b *internalWriter) writeMap(v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	b.WriteByte('{')
	for i, key := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.writeJSON(key)
		b.WriteByte(':')
		b.write(v.MapIndex(key))
	}
	b.WriteByte('}')
}

func (b *internalWriter) writeJSON(v reflect.Value) {
	text, err := json.Marshal(v.Interface())
	if err != nil {
		text = []byte("null")
	}
	b.Write(text)
}

// internalOrder names, by a field, the one that it comes after in the internal
// type where that is not the one before it.
var internalOrder = map[reflect.Type]map[string]string{
	reflect.TypeFor[corev1.VolumeSource]():           {"Quobyte": "RBD"},
	reflect.TypeFor[corev1.PersistentVolumeSource](): {"Quobyte": "RBD", "FlexVolume": "ISCSI"},
}

func membersOf(t reflect.Type) []reflect.StructField {
	members := slices.Collect(t.Fields())
	for name, before := range internalOrder[t] {
		at := slices.IndexFunc(members, func(m reflect.StructField) bool { return m.Name == name })
		member := members[at]
		members = slices.Delete(members, at, at+1)
		at = slices.IndexFunc(members, func(m reflect.StructField) bool { return m.Name == before })
		members = slices.Insert(members, at+1, member)
	}
	return members
}
