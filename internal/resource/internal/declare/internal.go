package declare

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// Internal returns a value as JSON for an error message. kube-apiserver validates its internal
// types, which have no JSON names: fields of API structs have their Go names, and none is
// omitted. Types of apimachinery (selectors, quantities, metadata) have their usual JSON.
func Internal(v any) json.RawMessage {
	var w internalWriter
	w.write(reflect.ValueOf(v))
	return w.Bytes()
}

// ExactText returns a text that is different for different values, even for nil and an empty
// list.
// A comparison with equality.Semantic takes nil and an empty list for equal; a comparison of these texts does
// not.
func ExactText(v any) string {
	w := internalWriter{all: true}
	w.write(reflect.ValueOf(v))
	return w.String()
}

type internalWriter struct {
	bytes.Buffer
	all bool // also write apimachinery's structs with Go names
}

func (w *internalWriter) open(t reflect.Type) bool {
	return isAPI(t.PkgPath()) || w.all && !t.Implements(marshaler)
}

// isAPI reports whether a package declares API types.
func isAPI(path string) bool { return strings.HasPrefix(path, "k8s.io/api/") }

var marshaler = reflect.TypeFor[json.Marshaler]()

// Immutable returns an error if a value differs from its old value.
// Values that are equal by equality.Semantic are the same: nil and an empty list, or 1 and 1000m. The error shows
// the new value; see Internal.
func Immutable(value, old any, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(value, old, path.K8s())
	for _, err := range errs {
		err.BadValue = Internal(value)
	}
	return errs
}

func (w *internalWriter) write(v reflect.Value) {
	if !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.IsNil() {
		w.WriteString("null")
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		w.write(v.Elem())
	case reflect.Slice:
		// Bytes are base64, as in JSON.
		if v.Type().Elem().Kind() == reflect.Uint8 {
			w.writeJSON(v)
			return
		}
		w.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				w.WriteByte(',')
			}
			w.write(v.Index(i))
		}
		w.WriteByte(']')
	case reflect.Map:
		w.writeMap(v)
	case reflect.Struct:
		if !w.open(v.Type()) {
			w.writeJSON(v)
			return
		}
		w.WriteByte('{')
		first := true
		w.writeMembers(v, &first)
		w.WriteByte('}')
	default:
		w.writeJSON(v)
	}
}

func (w *internalWriter) writeMembers(v reflect.Value, first *bool) {
	for member := range v.Type().Fields() {
		if member.Anonymous {
			w.writeEmbedded(v.FieldByIndex(member.Index), first)
			continue
		}
		w.writeName(member.Name, first)
		w.write(v.FieldByIndex(member.Index))
	}
}

// writeEmbedded writes embedded structs; metadata has its JSON names.
func (w *internalWriter) writeEmbedded(v reflect.Value, first *bool) {
	if w.open(v.Type()) {
		w.writeMembers(v, first)
		return
	}
	text, err := json.Marshal(v.Interface())
	if err != nil || len(text) <= len("{}") {
		return
	}
	if !*first {
		w.WriteByte(',')
	}
	*first = false
	w.Write(text[1 : len(text)-1])
}

func (w *internalWriter) writeName(name string, first *bool) {
	if !*first {
		w.WriteByte(',')
	}
	*first = false
	w.WriteByte('"')
	w.WriteString(name)
	w.WriteString(`":`)
}

// writeMap writes the entries in the order of their keys, as encoding/json does, so that equal values have equal
// texts. Keys are texts in all API types.
func (w *internalWriter) writeMap(v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	w.WriteByte('{')
	for i, key := range keys {
		if i > 0 {
			w.WriteByte(',')
		}
		w.writeJSON(key)
		w.WriteByte(':')
		w.write(v.MapIndex(key))
	}
	w.WriteByte('}')
}

func (w *internalWriter) writeJSON(v reflect.Value) {
	text, err := json.Marshal(v.Interface())
	if err != nil {
		text = []byte("null")
	}
	w.Write(text)
}
