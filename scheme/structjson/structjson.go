// Package structjson writes and reads the JSON of API structs by plans that are made once a type: which
// fields there are, where they lie, how each is encoded. encoding/json, which finds that out by reflection
// each time, is the measure: Append writes the same bytes, to the last escape, and Decode makes the same
// struct or says that it does not know.
//
// A plan is a tree of functions with offsets. For
//
//	type Spec struct {
//		Replicas *int32            `json:"replicas,omitempty"`
//		Labels   map[string]string `json:"labels,omitempty"`
//	}
//
// it is: a struct with the field "replicas" at offset 0, left out when nil, a pointer to a number; and the
// field "labels" at offset 8, left out when empty, a map of texts in the order of its keys. Types that
// encode themselves (json.Marshaler) are asked; the frequent ones of the API are known here.
package structjson

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A plan says how values of a type are written and read.
type plan struct {
	t reflect.Type
	// append appends the JSON of the value at p. As stored, empty lists and maps are written like missing
	// ones, as they are after a value was encoded as protobuf and decoded.
	append func(b []byte, p unsafe.Pointer, stored bool) ([]byte, error)
	// decode reads a value into p, which has its zero value.
	decode func(d *decoder, p unsafe.Pointer)
	// empty says whether a field with omitempty leaves the value out; nil: it never does.
	empty func(p unsafe.Pointer) bool
	// members are those of a struct.
	members *members
}

// members are the members of a struct.
type members struct {
	list   []member
	byName map[string]int
}

// member is one field of a struct, or of one that is embedded in it.
type member struct {
	name   string
	quoted string // the name and colon
	offset uintptr
	plan   *plan
	// omit leaves the member out; nil: it is always there.
	omit func(p unsafe.Pointer) bool
	// unstored says that protobuf does not have the member: apiVersion and kind.
	unstored bool
}

// plans has the *plan of each reflect.Type.
var plans sync.Map

// planOf returns the plan of a type. Types may contain themselves: what is handed out while it is being
// made works once it is used.
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

// maker makes the plans of a type and of those in it.
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

// structure plans a struct. Members of embedded structs without a name are its own, as long as no two
// have the same name: then encoding/json is left to sort it out.
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
		text, _ := json.Marshal(name) // a string
		added := member{name: name, quoted: string(text) + ":", offset: offset + f.Offset, plan: m.plan(f.Type), unstored: t == typeMetaType}
		all := strings.Split(options, ",")
		if len(all) > 1 || all[0] != "" && all[0] != "omitempty" && all[0] != "omitzero" && all[0] != "inline" {
			for _, o := range all {
				if o != "omitempty" && o != "omitzero" && o != "inline" {
					return false // such as ",string"
				}
			}
		}
		added.omit = omission(f.Type, all)
		s.list = append(s.list, added)
	}
	return true
}

// omission says when a field with these options is left out.
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

// emptyOf says which values of a type omitempty leaves out; nil is none.
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
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64, reflect.Interface:
		return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Elem().IsZero() }
	}
	return nil
}

// zeroOf says which values of a type omitzero leaves out.
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
