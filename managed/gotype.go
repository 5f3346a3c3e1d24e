package managed

import (
	"math"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// A goType is what counts of a Go type when its values are read as JSON would show
// them.
type goType struct {
	form goForm
	typ  reflect.Type
	// element is what a pointer, slice or map holds.
	element *goType
	fields  []goField
	// entry converts values of customForm.
	entry *value.TypeReflectCacheEntry
	// ready is closed when the rest is filled in: types refer to themselves.
}

type goField struct {
	name  string
	entry *value.FieldCacheEntry
	// index is the field's, -1 where it is in an embedded struct.
	index int
	typ   *goType
}

type goForm uint8

const (
	boolForm goForm = iota
	intForm
	uintForm
	floatForm
	stringForm
	bytesForm
	structForm
	mapForm
	sliceForm
	pointerForm
	// The types that convert themselves: the frequent ones, and the others.
	timeForm
	microTimeForm
	quantityForm
	intOrStringForm
	customForm
	// unknownForm is left to the general algorithm.
	unknownForm
)

var goTypes sync.Map // of reflect.Type to *goType

// goTypeOf describes a type; the same for every call.
func goTypeOf(t reflect.Type) *goType {
	if known, ok := goTypes.Load(t); ok {
		return known.(*goType)
	}
	made := map[reflect.Type]*goType{}
	out := describe(t, made)
	for typ, g := range made {
		goTypes.LoadOrStore(typ, g)
	}
	return out
}

func describe(t reflect.Type, made map[reflect.Type]*goType) *goType {
	if known, ok := goTypes.Load(t); ok {
		return known.(*goType)
	}
	if known := made[t]; known != nil {
		return known
	}
	g := &goType{typ: t, form: unknownForm}
	made[t] = g
	switch t {
	case reflect.TypeFor[metav1.Time]():
		g.form = timeForm
		return g
	case reflect.TypeFor[metav1.MicroTime]():
		g.form = microTimeForm
		return g
	case reflect.TypeFor[resource.Quantity]():
		g.form = quantityForm
		return g
	case reflect.TypeFor[intstr.IntOrString]():
		g.form = intOrStringForm
		return g
	}
	if t.Kind() == reflect.Pointer {
		// A pointer to a type that converts itself converts as what it points to.
		g.form, g.element = pointerForm, describe(t.Elem(), made)
		if g.element.form == pointerForm || g.element.form == mapForm || g.element.form == sliceForm {
			g.form = unknownForm
		}
		return g
	}
	if entry := value.TypeReflectEntryOf(t); entry.CanConvertToUnstructured() {
		g.form, g.entry = customForm, entry
		return g
	}
	switch t.Kind() {
	case reflect.Bool:
		g.form = boolForm
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		g.form = intForm
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		g.form = uintForm
	case reflect.Float32, reflect.Float64:
		g.form = floatForm
	case reflect.String:
		g.form = stringForm
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			g.form, g.element = mapForm, describe(t.Elem(), made)
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			g.form = bytesForm
		} else {
			g.form, g.element = sliceForm, describe(t.Elem(), made)
		}
	case reflect.Struct:
		g.form = structForm
		describeFields(g, made)
	}
	return g
}

func describeFields(g *goType, made map[reflect.Type]*goType) {
	for _, entry := range value.TypeReflectEntryOf(g.typ).OrderedFields() {
		f := goField{name: entry.JsonName, entry: entry, index: -1}
		sample := entry.GetFrom(reflect.New(g.typ).Elem())
		f.typ = describe(sample.Type(), made)
		for i := range g.typ.NumField() {
			own := g.typ.Field(i)
			if !own.Anonymous && own.IsExported() && jsonName(own) == f.name {
				f.index = i
			}
		}
		g.fields = append(g.fields, f)
	}
}

func jsonName(f reflect.StructField) string {
	tag := f.Tag.Get("json")
	for i := range len(tag) {
		if tag[i] == ',' {
			tag = tag[:i]
			break
		}
	}
	if tag == "" {
		return f.Name
	}
	return tag
}

// of returns the field of a struct, and false where JSON omits it.
func (f *goField) of(v reflect.Value) (reflect.Value, bool) {
	var out reflect.Value
	if f.index >= 0 {
		out = v.Field(f.index)
	} else {
		out = f.entry.GetFrom(v)
	}
	return out, !f.entry.CanOmit(out)
}

// null says whether the value reads as null. v is not a pointer that is set.
func (g *goType) null(v reflect.Value) bool {
	switch g.form {
	case mapForm, sliceForm, pointerForm, bytesForm:
		return v.IsNil()
	case timeForm:
		return timeOf(v).IsZero()
	case microTimeForm:
		return microTimeOf(v).IsZero()
	case customForm:
		tree, err := g.entry.ToUnstructured(addressable(v))
		return err == nil && tree == nil
	}
	return false
}

// addressable returns v, or a copy that has an address.
func addressable(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return v
	}
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	return out
}

func timeOf(v reflect.Value) time.Time { return addressable(v).Addr().Interface().(*metav1.Time).Time }
func microTimeOf(v reflect.Value) time.Time {
	return addressable(v).Addr().Interface().(*metav1.MicroTime).Time
}

// equal says whether two values of the type read the same.
func (g *goType) equal(l, r reflect.Value) bool {
	switch g.form {
	case boolForm:
		return l.Bool() == r.Bool()
	case intForm:
		return l.Int() == r.Int()
	case uintForm:
		return l.Uint() == r.Uint()
	case floatForm:
		return l.Float() == r.Float()
	case stringForm:
		return l.String() == r.String()
	case bytesForm:
		return l.IsNil() == r.IsNil() && string(l.Bytes()) == string(r.Bytes())
	case pointerForm:
		if l.IsNil() || r.IsNil() {
			return g.isNull(l) == g.isNull(r)
		}
		return l.Pointer() == r.Pointer() || g.element.equal(l.Elem(), r.Elem())
	case structForm:
		// The last first: the status of an object changes most.
		for i := len(g.fields) - 1; i >= 0; i-- {
			f := &g.fields[i]
			a, hasA := f.of(l)
			b, hasB := f.of(r)
			if hasA != hasB || hasA && !f.typ.equal(a, b) {
				return false
			}
		}
		return true
	case sliceForm:
		if l.IsNil() != r.IsNil() || l.Len() != r.Len() {
			return false
		}
		// The general algorithm compares lists as Go does, in which a nil list differs
		// from an empty one although JSON shows neither.
		return l.Len() == 0 || l.Pointer() == r.Pointer() || reflect.DeepEqual(l.Interface(), r.Interface())
	case mapForm:
		if l.IsNil() != r.IsNil() || l.Len() != r.Len() {
			return false
		}
		for entries := l.MapRange(); entries.Next(); {
			other := r.MapIndex(entries.Key())
			if !other.IsValid() || !g.element.equal(entries.Value(), other) {
				return false
			}
		}
		return true
	}
	return g.equalCustom(l, r)
}

// isNull is null for pointers too: one to a value that reads as null does as well.
func (g *goType) isNull(v reflect.Value) bool {
	if g.form == pointerForm && !v.IsNil() {
		return g.element.null(v.Elem())
	}
	return g.null(v)
}

func (g *goType) equalCustom(l, r reflect.Value) bool {
	switch g.form {
	case timeForm:
		a, b := timeOf(l), timeOf(r)
		return a.IsZero() == b.IsZero() && (a.IsZero() || a.Unix() == b.Unix())
	case microTimeForm:
		a, b := microTimeOf(l), microTimeOf(r)
		return a.IsZero() == b.IsZero() && (a.IsZero() || a.UnixMicro() == b.UnixMicro())
	case quantityForm:
		a := addressable(l).Addr().Interface().(*resource.Quantity)
		b := addressable(r).Addr().Interface().(*resource.Quantity)
		// String may write to its receiver, which may be read elsewhere.
		x, y := *a, *b
		return x == y || x.String() == y.String()
	case intOrStringForm:
		a := addressable(l).Addr().Interface().(*intstr.IntOrString)
		b := addressable(r).Addr().Interface().(*intstr.IntOrString)
		if a.Type != b.Type {
			return false
		}
		if a.Type == intstr.Int {
			return a.IntVal == b.IntVal
		}
		return a.StrVal == b.StrVal
	}
	a, errA := g.entry.ToUnstructured(addressable(l))
	b, errB := g.entry.ToUnstructured(addressable(r))
	return errA == nil && errB == nil && equalTrees(a, b)
}

// equalTrees compares decoded JSON; numbers by value.
func equalTrees(a, b any) bool {
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		b, ok := b.(string)
		return ok && a == b
	case bool:
		b, ok := b.(bool)
		return ok && a == b
	case int64, float64, int:
		return equalNumbers(a, b)
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) || (a == nil) != (b == nil) {
			return false
		}
		for i := range a {
			if !equalTrees(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) || (a == nil) != (b == nil) {
			return false
		}
		for k, v := range a {
			other, has := b[k]
			if !has || !equalTrees(v, other) {
				return false
			}
		}
		return true
	}
	return false
}

func equalNumbers(a, b any) bool {
	x, aInt := integer(a)
	y, bInt := integer(b)
	if aInt && bInt {
		return x == y
	}
	f, g := float(a), float(b)
	return f == g
}

func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int:
		return int64(v), true
	}
	return 0, false
}

// float is not a number for what is none.
func float(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case int64:
		return float64(v)
	case int:
		return float64(v)
	}
	return math.NaN()
}
