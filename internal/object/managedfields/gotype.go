package managedfields

import (
	"reflect"
	"sync"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// A goType describes how values of a Go type appear in JSON.
type goType struct {
	kind goKind
	typ  reflect.Type
	// element is the type that a pointer, slice or map contains.
	element *goType
	fields  []goField
	// entry converts values of customForm.
	entry *value.TypeReflectCacheEntry
}

type goField struct {
	name  string
	entry *value.FieldCacheEntry
	// index is the index of the field in its struct, -1 if it is a field of an embedded struct.
	index int
	typ   *goType
	// JSON omits the field if the zeroBytes bytes at zeroAt in the struct are zero, which is the most frequent
	// case. It may omit other values too. If zeroBytes is 0, nothing is known from the memory.
	zeroAt, zeroBytes uintptr
}

type goKind uint8

const (
	boolKind goKind = iota
	intKind
	uintKind
	floatKind
	stringKind
	bytesKind
	structKind
	mapKind
	sliceKind
	pointerKind
	// Types that convert themselves: the frequent ones, and the others.
	timeKind
	microTimeKind
	quantityKind
	intOrStringKind
	customKind
	// unknownKind is left to the general algorithm.
	unknownKind
)

var goTypes sync.Map // of reflect.Type to *goType

// goTypeOf returns the description of a type. All calls for one type return the same pointer.
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
	g := &goType{typ: t, kind: unknownKind}
	made[t] = g
	switch t {
	case reflect.TypeFor[metav1.Time]():
		g.kind = timeKind
		return g
	case reflect.TypeFor[metav1.MicroTime]():
		g.kind = microTimeKind
		return g
	case reflect.TypeFor[resource.Quantity]():
		g.kind = quantityKind
		return g
	case reflect.TypeFor[intstr.IntOrString]():
		g.kind = intOrStringKind
		return g
	}
	if t.Kind() == reflect.Pointer {
		// A pointer to a type with its own conversion has the JSON of the value that it points to.
		g.kind, g.element = pointerKind, describe(t.Elem(), made)
		if g.element.kind == pointerKind || g.element.kind == mapKind || g.element.kind == sliceKind {
			g.kind = unknownKind
		}
		return g
	}
	if entry := value.TypeReflectEntryOf(t); entry.CanConvertToUnstructured() {
		g.kind, g.entry = customKind, entry
		return g
	}
	switch t.Kind() {
	case reflect.Bool:
		g.kind = boolKind
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		g.kind = intKind
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		g.kind = uintKind
	case reflect.Float32, reflect.Float64:
		g.kind = floatKind
	case reflect.String:
		g.kind = stringKind
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			g.kind, g.element = mapKind, describe(t.Elem(), made)
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			g.kind = bytesKind
		} else {
			g.kind, g.element = sliceKind, describe(t.Elem(), made)
		}
	case reflect.Struct:
		g.kind = structKind
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
		f.findZero(g.typ, 0)
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
	if tag == "" && !f.Anonymous {
		return f.Name
	}
	return tag
}

// findZero looks for the field in the struct type t and in the structs that are embedded in it, and sets zeroAt
// and zeroBytes if it finds the field. offset is the position of the struct t in the struct that f belongs to.
func (f *goField) findZero(t reflect.Type, offset uintptr) {
	for i := range t.NumField() {
		own := t.Field(i)
		if own.Anonymous && own.Type.Kind() == reflect.Struct && jsonName(own) == "" {
			f.findZero(own.Type, offset+own.Offset)
			continue
		}
		if !own.IsExported() || jsonName(own) != f.name || !f.entry.CanOmit(reflect.Zero(own.Type)) {
			continue
		}
		switch own.Type.Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice: // nil
			f.zeroAt, f.zeroBytes = offset+own.Offset, unsafe.Sizeof(uintptr(0))
		case reflect.String: // its length
			f.zeroAt, f.zeroBytes = offset+own.Offset+unsafe.Sizeof(uintptr(0)), unsafe.Sizeof(0)
		case reflect.Bool, reflect.Int32, reflect.Int64:
			f.zeroAt, f.zeroBytes = offset+own.Offset, own.Type.Size()
		}
	}
}

// isZero reports whether the memory of the field in the struct at p is zero, so that JSON omits the field. It
// returns true for a nil p, which means that there is no struct.
func (f *goField) isZero(p unsafe.Pointer) bool {
	switch {
	case p == nil:
		return true
	case f.zeroBytes == 8:
		return *(*uint64)(unsafe.Add(p, f.zeroAt)) == 0
	case f.zeroBytes == 4:
		return *(*uint32)(unsafe.Add(p, f.zeroAt)) == 0
	case f.zeroBytes == 1:
		return *(*uint8)(unsafe.Add(p, f.zeroAt)) == 0
	}
	return false
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

// null reports whether the JSON of the value is null. v must not be a pointer, unless it is nil.
func (g *goType) null(v reflect.Value) bool {
	switch g.kind {
	case mapKind, sliceKind, pointerKind, bytesKind:
		return v.IsNil()
	case timeKind:
		return timeOf(v).IsZero()
	case microTimeKind:
		return microTimeOf(v).IsZero()
	case customKind:
		tree, err := g.entry.ToUnstructured(addressable(v))
		return err == nil && tree == nil
	}
	return false
}

// addressable returns v, or a copy of it that has an address.
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

// equal reports whether the JSON of two values of the type is equal.
func (g *goType) equal(l, r reflect.Value) bool {
	switch g.kind {
	case boolKind:
		return l.Bool() == r.Bool()
	case intKind:
		return l.Int() == r.Int()
	case uintKind:
		return l.Uint() == r.Uint()
	case floatKind:
		return l.Float() == r.Float()
	case stringKind:
		return l.String() == r.String()
	case bytesKind:
		return l.IsNil() == r.IsNil() && string(l.Bytes()) == string(r.Bytes())
	case pointerKind:
		if l.IsNil() || r.IsNil() {
			return g.isNull(l) == g.isNull(r)
		}
		return l.Pointer() == r.Pointer() || g.element.equal(l.Elem(), r.Elem())
	case structKind:
		// The last field comes first: it is the status, which changes most often.
		for i := len(g.fields) - 1; i >= 0; i-- {
			f := &g.fields[i]
			a, hasA := f.of(l)
			b, hasB := f.of(r)
			if hasA != hasB || hasA && !f.typ.equal(a, b) {
				return false
			}
		}
		return true
	case sliceKind:
		if l.IsNil() != r.IsNil() || l.Len() != r.Len() {
			return false
		}
		// The general algorithm compares lists with reflect.DeepEqual: a nil list in an item differs from an empty
		// one, although JSON shows neither.
		return l.Len() == 0 || l.Pointer() == r.Pointer() || reflect.DeepEqual(l.Interface(), r.Interface())
	case mapKind:
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

// isNull is null for any value. A pointer that is not nil is also null if the value that it points to has the JSON
// null.
func (g *goType) isNull(v reflect.Value) bool {
	if g.kind == pointerKind && !v.IsNil() {
		return g.element.null(v.Elem())
	}
	return g.null(v)
}

// equalCustom is equal for types that convert themselves.
func (g *goType) equalCustom(l, r reflect.Value) bool {
	switch g.kind {
	case timeKind:
		a, b := timeOf(l), timeOf(r)
		return a.IsZero() == b.IsZero() && (a.IsZero() || a.Unix() == b.Unix())
	case microTimeKind:
		a, b := microTimeOf(l), microTimeOf(r)
		return a.IsZero() == b.IsZero() && (a.IsZero() || a.UnixMicro() == b.UnixMicro())
	case quantityKind:
		a := addressable(l).Addr().Interface().(*resource.Quantity)
		b := addressable(r).Addr().Interface().(*resource.Quantity)
		// String may write to its receiver, which other goroutines may read. So copies are compared.
		x, y := *a, *b
		return x == y || x.String() == y.String()
	case intOrStringKind:
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
	return errA == nil && errB == nil && scheme.EqualTreeValues(a, b)
}
