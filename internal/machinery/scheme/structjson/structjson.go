// Package structjson encodes and decodes the JSON of API structs by plans, which are made once per type:
// which fields the type has, at which offsets, and how each is encoded. encoding/json does this by
// reflection each time. The results are the same: Append writes exactly the same bytes, and Decode
// returns the same struct or false.
//
// A plan is a tree of functions with offsets. For
//
//	type Spec struct {
//		Replicas *int32            `json:"replicas,omitempty"`
//		Labels   map[string]string `json:"labels,omitempty"`
//	}
//
// the plan is: a struct with the field "replicas" at offset 0, omitted if nil, a pointer to a number; and
// the field "labels" at offset 8, omitted if empty, a map of strings with sorted keys. For types that
// implement json.Marshaler, the plan calls their methods, except for the frequent ones of the API.
//
// AppendMessage makes the same JSON from a protobuf message, without a struct in between (message.go).
package structjson

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A plan has the functions that encode and decode values of a type.
type plan struct {
	t reflect.Type
	// append appends the JSON of the value at p. If stored is true, empty lists and maps are encoded
	// like missing ones, because protobuf does not distinguish them.
	append func(b []byte, p unsafe.Pointer, stored bool) ([]byte, error)
	// decode decodes a value into p, which has its zero value.
	decode func(d *decoder, p unsafe.Pointer)
	// empty reports whether omitempty omits the value. If nil, it never does.
	empty func(p unsafe.Pointer) bool
	// members has the members of a struct type.
	members *members
}

type members struct {
	list   []member
	byName map[string]int
}

// member is one field of a struct, or of one that is embedded in it.
type member struct {
	name   string
	quoted string // the name in quotes, with the colon
	offset uintptr
	plan   *plan
	// omit reports whether the member is omitted. If nil, it never is.
	omit func(p unsafe.Pointer) bool
	// unstored is true for apiVersion and kind, which are not in the protobuf message.
	unstored bool
}

// plans caches plans: reflect.Type -> *plan.
var plans sync.Map

// planOf returns the plan of a type. Types can be recursive, so the plan of a type in it may
// be incomplete until planOf returns.
func planOf(t reflect.Type) *plan {
	if found, ok := plans.Load(t); ok {
		return found.(*plan)
	}
	m := maker{made: map[reflect.Type]*plan{}}
	p := m.plan(t)
	for t, made := range m.made {
		plans.LoadOrStore(t, made)
	}
	return p
}

// maker makes the plans of a type and of the types in it.
type maker struct{ made map[reflect.Type]*plan }

var (
	marshalerType   = reflect.TypeFor[json.Marshaler]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	messageType     = reflect.TypeFor[interface{ Unmarshal([]byte) error }]()
	typeMetaType    = reflect.TypeFor[metav1.TypeMeta]()
	zeroerType      = reflect.TypeFor[interface{ IsZero() bool }]()
)

func (m *maker) plan(t reflect.Type) *plan {
	if found, ok := plans.Load(t); ok {
		return found.(*plan)
	}
	if p := m.made[t]; p != nil {
		return p
	}
	p := &plan{t: t}
	m.made[t] = p
	if known, ok := knownTypes[t]; ok {
		p.append, p.decode = known.append, known.decode
		p.empty = emptyOf(t)
		return p
	}
	if reflect.PointerTo(t).Implements(marshalerType) || reflect.PointerTo(t).Implements(unmarshalerType) {
		p.append, p.decode = appendByItself(t), decodeByItself(t)
		p.empty = emptyOf(t)
		return p
	}
	p.empty = emptyOf(t)
	if reflect.PointerTo(t).Implements(textMarshalerType) || reflect.PointerTo(t).Implements(textUnmarshalerType) {
		other(p)
		return p
	}
	switch t.Kind() {
	case reflect.Struct:
		m.structure(p)
	case reflect.Pointer:
		m.pointer(p)
	case reflect.Slice:
		m.slice(p)
	case reflect.Map:
		m.mapping(p)
	default:
		scalar(p)
	}
	return p
}

// structure makes the plan of a struct. The members of embedded structs are its own. If two
// members have the same name, encoding/json encodes the struct.
func (m *maker) structure(p *plan) {
	s := &members{byName: map[string]int{}}
	if !m.fields(s, p.t, 0) {
		other(p)
		return
	}
	p.members = s
	p.append, p.decode = s.append, s.decode
}

func (m *maker) fields(s *members, t reflect.Type, offset uintptr) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if f.Anonymous && name == "" {
			if f.Type.Kind() != reflect.Struct || !m.fields(s, f.Type, offset+f.Offset) {
				return false
			}
			continue
		}
		if !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if _, twice := s.byName[name]; twice {
			return false
		}
		s.byName[name] = len(s.list)
		text, _ := json.Marshal(name) // encoding a string cannot fail
		added := member{name: name, quoted: string(text) + ":", offset: offset + f.Offset, plan: m.plan(f.Type),
			unstored: t == typeMetaType}
		all := strings.Split(options, ",")
		if len(all) > 1 || all[0] != "" && all[0] != "omitempty" && all[0] != "omitzero" && all[0] != "inline" {
			for _, o := range all {
				if o != "omitempty" && o != "omitzero" && o != "inline" {
					return false // an option that is not supported, such as ",string"
				}
			}
		}
		added.omit = omission(f.Type, all)
		s.list = append(s.list, added)
	}
	return true
}

// omission returns the function that reports whether a field with these options is omitted.
func omission(t reflect.Type, options []string) func(unsafe.Pointer) bool {
	var omit []func(unsafe.Pointer) bool
	for _, o := range options {
		switch o {
		case "omitempty":
			if empty := emptyOf(t); empty != nil {
				omit = append(omit, empty)
			}
		case "omitzero":
			omit = append(omit, zeroOf(t))
		}
	}
	switch len(omit) {
	case 0:
		return nil
	case 1:
		return omit[0]
	}
	return func(p unsafe.Pointer) bool { return omit[0](p) || omit[1](p) }
}

// emptyOf returns the function that reports whether omitempty omits a value of the type, nil
// if it never does.
func emptyOf(t reflect.Type) func(unsafe.Pointer) bool {
	switch t.Kind() {
	case reflect.Bool:
		return func(p unsafe.Pointer) bool { return !*(*bool)(p) }
	case reflect.String:
		return func(p unsafe.Pointer) bool { return len(*(*string)(p)) == 0 }
	case reflect.Pointer:
		return func(p unsafe.Pointer) bool { return *(*unsafe.Pointer)(p) == nil }
	case reflect.Slice:
		return func(p unsafe.Pointer) bool { return len(*(*[]byte)(p)) == 0 }
	case reflect.Map:
		return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Elem().Len() == 0 }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64,
		reflect.Interface:
		return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Elem().IsZero() }
	}
	return nil
}

// zeroOf returns the function that reports whether omitzero omits a value of the type.
func zeroOf(t reflect.Type) func(unsafe.Pointer) bool {
	if t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(zeroerType) {
		return func(p unsafe.Pointer) bool {
			return reflect.NewAt(t, p).Interface().(interface{ IsZero() bool }).IsZero()
		}
	}
	if t.Implements(zeroerType) {
		return func(p unsafe.Pointer) bool {
			v := reflect.NewAt(t, p).Elem()
			return v.IsNil() || v.Interface().(interface{ IsZero() bool }).IsZero()
		}
	}
	return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Elem().IsZero() }
}
