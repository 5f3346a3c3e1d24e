package managedfields

import (
	"encoding/base64"
	"reflect"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// assign sets v to the decoded JSON c, as runtime.DefaultUnstructuredConverter does. The merge fails if the
// converter would return an error.
func (m *merge) assign(g *goType, v reflect.Value, c any) {
	switch {
	case m.failed:
		return
	case c == nil:
		v.SetZero()
		return
	}
	ok := false
	switch g.kind {
	case stringKind, boolKind, intKind:
		ok = assignScalar(v, c)
	case bytesKind:
		ok = assignBytes(v, c)
	case pointerKind:
		v.Set(reflect.New(g.element.typ))
		m.assign(g.element, v.Elem(), c)
		return
	case sliceKind:
		list, isList := c.([]any)
		if ok = isList; ok {
			out := reflect.MakeSlice(v.Type(), len(list), len(list))
			for i := range list {
				m.assign(g.element, out.Index(i), list[i])
			}
			v.Set(out)
		}
	case structKind, mapKind:
		members, isMap := c.(map[string]any)
		if ok = isMap; ok {
			v.SetZero()
			ok = runtime.DefaultUnstructuredConverter.FromUnstructured(members, v.Addr().Interface()) == nil
		}
	case timeKind, microTimeKind, quantityKind, intOrStringKind, customKind:
		v.SetZero()
		ok = value.TypeReflectEntryOf(v.Type()).FromUnstructured(reflect.ValueOf(c), v) == nil
	}
	if !ok {
		m.failed = true
	}
}

func assignScalar(v reflect.Value, c any) bool {
	switch c := c.(type) {
	case string:
		if v.Kind() == reflect.String {
			v.SetString(c)
			return true
		}
	case bool:
		if v.Kind() == reflect.Bool {
			v.SetBool(c)
			return true
		}
	case int64:
		if v.CanInt() {
			v.SetInt(c)
			return true
		}
	}
	return false
}

func assignBytes(v reflect.Value, c any) bool {
	text, ok := c.(string)
	if !ok {
		return false
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	v.SetBytes(raw)
	return true
}

// equal reports whether the JSON of v equals the decoded JSON c.
func (m *merge) equal(g *goType, v reflect.Value, c any) bool {
	switch g.kind {
	case boolKind:
		b, ok := c.(bool)
		return ok && b == v.Bool()
	case intKind:
		return scheme.EqualTreeValues(v.Int(), c)
	case floatKind:
		return scheme.EqualTreeValues(v.Float(), c)
	case stringKind:
		text, ok := c.(string)
		return ok && text == v.String()
	case bytesKind:
		text, ok := c.(string)
		return v.IsNil() && c == nil || ok && !v.IsNil() && text == base64.StdEncoding.EncodeToString(v.Bytes())
	case pointerKind:
		if v.IsNil() {
			return c == nil
		}
		return m.equal(g.element, v.Elem(), c)
	case structKind, mapKind, sliceKind:
		return m.equalItems(g, v, c)
	}
	return m.equalCustom(g, v, c)
}

// equalItems is equal for structs, maps and lists.
func (m *merge) equalItems(g *goType, v reflect.Value, c any) bool {
	if isNil(v) {
		return c == nil
	}
	if list, isList := c.([]any); g.kind == sliceKind {
		if !isList || len(list) != v.Len() {
			return false
		}
		for i := range list {
			if !m.equal(g.element, v.Index(i), list[i]) {
				return false
			}
		}
		return true
	}
	members, isMap := c.(map[string]any)
	if !isMap {
		return false
	}
	if g.kind == mapKind {
		if len(members) != v.Len() {
			return false
		}
		for entries := v.MapRange(); entries.Next(); {
			other, has := members[entries.Key().String()]
			if !has || !m.equal(g.element, entries.Value(), other) {
				return false
			}
		}
		return true
	}
	shown := 0
	for i := range g.fields {
		f := &g.fields[i]
		if inner, has := f.of(v); has {
			shown++
			if other, sent := members[f.name]; !sent || !m.equal(f.typ, inner, other) {
				return false
			}
		}
	}
	return shown == len(members)
}

// equalCustom is equal for types that convert themselves.
func (m *merge) equalCustom(g *goType, v reflect.Value, c any) bool {
	switch g.kind {
	case timeKind:
		return scheme.EqualTreeValues(addressable(v).Addr().Interface().(*metav1.Time).ToUnstructured(), c)
	case quantityKind:
		// String may write to its receiver.
		q := *addressable(v).Addr().Interface().(*resource.Quantity)
		text, ok := c.(string)
		return ok && q.String() == text
	case intOrStringKind:
		x := addressable(v).Addr().Interface().(*intstr.IntOrString)
		if x.Type == intstr.Int {
			return scheme.EqualTreeValues(int64(x.IntVal), c)
		}
		text, ok := c.(string)
		return ok && x.StrVal == text
	case microTimeKind:
		shown, err := value.TypeReflectEntryOf(v.Type()).ToUnstructured(addressable(v))
		return err == nil && scheme.EqualTreeValues(shown, c)
	}
	m.failed = true
	return false
}
