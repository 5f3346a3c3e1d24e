package structjson

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Append appends the JSON of the struct that v points to. The result equals that of
// json.Marshal.
func Append(b []byte, v any) ([]byte, error) { return appendValue(b, v, false) }

// AppendStored appends the JSON of v as it would be after encoding as protobuf and decoding:
// without empty lists and maps, and without apiVersion and kind, which are in the envelope.
func AppendStored(b []byte, v any) ([]byte, error) { return appendValue(b, v, true) }

func appendValue(b []byte, v any, stored bool) ([]byte, error) {
	value := reflect.ValueOf(v)
	if value.Kind() != reflect.Pointer || value.IsNil() || value.Elem().Kind() != reflect.Struct {
		return b, fmt.Errorf("structjson: %T is not a pointer to a struct", v)
	}
	return planOf(value.Type().Elem()).append(b, value.UnsafePointer(), stored)
}

func (me *members) append(b []byte, p unsafe.Pointer, stored bool) (_ []byte, err error) {
	b = append(b, '{')
	first := true
	for i := range me.list {
		m := &me.list[i]
		at := unsafe.Add(p, m.offset)
		if m.omit != nil && m.omit(at) || stored && m.unstored {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, m.quoted...)
		if b, err = m.plan.append(b, at, stored); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

func (m *maker) pointer(p *plan) {
	to := m.plan(p.t.Elem())
	p.append = func(b []byte, at unsafe.Pointer, stored bool) ([]byte, error) {
		target := *(*unsafe.Pointer)(at)
		if target == nil {
			return append(b, "null"...), nil
		}
		return to.append(b, target, stored)
	}
	p.decode = func(d *decoder, at unsafe.Pointer) {
		if d.null() {
			return
		}
		target := reflect.New(p.t.Elem())
		to.decode(d, target.UnsafePointer())
		*(*unsafe.Pointer)(at) = target.UnsafePointer()
	}
}

// sliceHeader is the memory layout of a slice.
type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

func (m *maker) slice(p *plan) {
	if p.t.Elem().Kind() == reflect.Uint8 && !reflect.PointerTo(p.t.Elem()).Implements(marshalerType) {
		p.append = func(b []byte, at unsafe.Pointer, _ bool) ([]byte, error) { return appendBytes(b, *(*[]byte)(at)), nil }
		p.decode = decodeBytes
		return
	}
	element := m.plan(p.t.Elem())
	size := p.t.Elem().Size()
	// A slice type that is a message of its own (ExtraValue) is stored even if it is empty.
	message := reflect.PointerTo(p.t).Implements(messageType)
	p.append = func(b []byte, at unsafe.Pointer, stored bool) (_ []byte, err error) {
		h := (*sliceHeader)(at)
		if stored && message && h.len == 0 {
			return append(b, "[]"...), nil
		}
		if h.data == nil || stored && h.len == 0 {
			return append(b, "null"...), nil
		}
		b = append(b, '[')
		for i := range h.len {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = element.append(b, unsafe.Add(h.data, uintptr(i)*size), stored); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	}
	p.decode = func(d *decoder, at unsafe.Pointer) { d.slice(p.t, element, at) }
}

func (m *maker) mapping(p *plan) {
	element := m.plan(p.t.Elem())
	key := p.t.Key()
	if key.Kind() != reflect.String || key.Implements(textMarshalerType) ||
		reflect.PointerTo(key).Implements(textUnmarshalerType) {
		other(p)
		return
	}
	if p.t.ConvertibleTo(stringMapType) && p.t.Elem() == stringMapType.Elem() && key == stringMapType.Key() {
		p.append, p.decode = appendStringMap, decodeStringMap
		return
	}
	p.append = func(b []byte, at unsafe.Pointer, stored bool) ([]byte, error) {
		return appendMap(b, reflect.NewAt(p.t, at).Elem(), element, stored)
	}
	p.decode = func(d *decoder, at unsafe.Pointer) { d.mapping(p.t, element, at) }
}

func appendStringMap(b []byte, at unsafe.Pointer, stored bool) ([]byte, error) {
	values := *(*map[string]string)(at)
	if values == nil || stored && len(values) == 0 {
		return append(b, "null"...), nil
	}
	var few [8]string
	keys := few[:0]
	for k := range values {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, k), ':')
		b = appendString(b, values[k])
	}
	return append(b, '}'), nil
}

// appendResources appends a ResourceList.
func appendResources(b []byte, at unsafe.Pointer, stored bool) ([]byte, error) {
	values := *(*corev1.ResourceList)(at)
	if values == nil || stored && len(values) == 0 {
		return append(b, "null"...), nil
	}
	var few [8]string
	names := few[:0]
	for name := range values {
		names = append(names, string(name))
	}
	slices.Sort(names)
	b = append(b, '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		b = appendCopiedQuantity(b, values[corev1.ResourceName(name)])
	}
	return append(b, '}'), nil
}

func appendMap(b []byte, values reflect.Value, element *plan, stored bool) (_ []byte, err error) {
	if values.IsNil() || stored && values.Len() == 0 {
		return append(b, "null"...), nil
	}
	type entry struct {
		key   string
		value reflect.Value
	}
	entries := make([]entry, 0, values.Len())
	for it := values.MapRange(); it.Next(); {
		// The values of a map are not addressable, so each is copied.
		value := reflect.New(values.Type().Elem())
		value.Elem().Set(it.Value())
		entries = append(entries, entry{it.Key().String(), value})
	}
	slices.SortFunc(entries, func(x, y entry) int {
		if x.key < y.key {
			return -1
		}
		return 1
	})
	b = append(b, '{')
	for i, e := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, e.key), ':')
		if stored && values.Type().Elem().Kind() == reflect.Slice && values.Type().Elem().Elem().Kind() == reflect.Uint8 {
			b = appendNoNil(b, *(*[]byte)(e.value.UnsafePointer()))
			continue
		}
		if b, err = element.append(b, e.value.UnsafePointer(), stored); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// scalar makes the plan for a number, a boolean or a string.
func scalar(p *plan) {
	switch p.t.Kind() {
	case reflect.String:
		p.append = func(b []byte, at unsafe.Pointer, _ bool) ([]byte, error) { return appendString(b, *(*string)(at)), nil }
		p.decode = func(d *decoder, at unsafe.Pointer) { *(*string)(at) = d.string() }
	case reflect.Bool:
		p.append = func(b []byte, at unsafe.Pointer, _ bool) ([]byte, error) {
			return strconv.AppendBool(b, *(*bool)(at)), nil
		}
		p.decode = func(d *decoder, at unsafe.Pointer) { *(*bool)(at) = d.bool() }
	case reflect.Int32:
		p.append = func(b []byte, at unsafe.Pointer, _ bool) ([]byte, error) {
			return strconv.AppendInt(b, int64(*(*int32)(at)), 10), nil
		}
		p.decode = func(d *decoder, at unsafe.Pointer) { *(*int32)(at) = int32(d.int(32)) }
	case reflect.Int64:
		p.append = func(b []byte, at unsafe.Pointer, _ bool) ([]byte, error) {
			return strconv.AppendInt(b, *(*int64)(at), 10), nil
		}
		p.decode = func(d *decoder, at unsafe.Pointer) { *(*int64)(at) = d.int(64) }
	default:
		other(p)
	}
}

// other makes the plan for a rare type, which encoding/json encodes.
func other(p *plan) {
	t := p.t
	p.append = func(b []byte, at unsafe.Pointer, _ bool) ([]byte, error) {
		text, err := json.Marshal(reflect.NewAt(t, at).Interface())
		return append(b, text...), err
	}
	p.decode = func(d *decoder, _ unsafe.Pointer) { d.unknown() }
}

// appendByItself returns the function for a type that implements json.Marshaler.
func appendByItself(t reflect.Type) func([]byte, unsafe.Pointer, bool) ([]byte, error) {
	return func(b []byte, at unsafe.Pointer, _ bool) ([]byte, error) {
		text, err := json.Marshal(reflect.NewAt(t, at).Interface())
		return append(b, text...), err
	}
}

// knownType has functions for a type that implements json.Marshaler. They give the same result
// without calling its methods.
type knownType struct {
	append func(b []byte, p unsafe.Pointer, stored bool) ([]byte, error)
	decode func(d *decoder, p unsafe.Pointer)
}

// knownTypes are the frequent types of the API that implement json.Marshaler.
var knownTypes = map[reflect.Type]knownType{
	reflect.TypeFor[metav1.Time]():         {appendTime, decodeByItself(reflect.TypeFor[metav1.Time]())},
	reflect.TypeFor[metav1.FieldsV1]():     {appendFields, decodeByItself(reflect.TypeFor[metav1.FieldsV1]())},
	reflect.TypeFor[resource.Quantity]():   {appendQuantity, (*decoder).quantity},
	reflect.TypeFor[corev1.ResourceList](): {appendResources, decodeResources},
	reflect.TypeFor[intstr.IntOrString]():  {appendIntOrString, decodeByItself(reflect.TypeFor[intstr.IntOrString]())},
}

func appendTime(b []byte, p unsafe.Pointer, _ bool) ([]byte, error) {
	t := (*metav1.Time)(p)
	if t.IsZero() {
		return append(b, "null"...), nil
	}
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339)
	return append(b, '"'), nil
}

// appendQuantity does not call String, which would change the value by caching the text, while
// other goroutines may read it.
func appendQuantity(b []byte, p unsafe.Pointer, _ bool) ([]byte, error) {
	return appendCopiedQuantity(b, *(*resource.Quantity)(p)), nil
}

func appendCopiedQuantity(b []byte, q resource.Quantity) []byte {
	b = append(b, '"')
	number, suffix := q.CanonicalizeBytes(b[len(b):]) // number often uses the unused memory behind b already
	b = append(append(b, number...), suffix...)
	return append(b, '"')
}

func appendIntOrString(b []byte, p unsafe.Pointer, _ bool) ([]byte, error) {
	v := (*intstr.IntOrString)(p)
	switch v.Type {
	case intstr.Int:
		return strconv.AppendInt(b, int64(v.IntVal), 10), nil
	case intstr.String:
		return appendString(b, v.StrVal), nil
	}
	return b, fmt.Errorf("impossible IntOrString.Type")
}

// appendFields appends fieldsV1, which is JSON itself. JSON that the server has written is appended unchanged.
func appendFields(b []byte, p unsafe.Pointer, _ bool) ([]byte, error) {
	raw := (*metav1.FieldsV1)(p).Raw
	switch {
	case raw == nil:
		return append(b, "null"...), nil
	case plainFields(raw):
		return append(b, raw...), nil
	}
	text, err := json.Marshal((*metav1.FieldsV1)(p))
	if err != nil {
		return b, err
	}
	return append(b, text...), nil
}

// maxFieldsDepth is the largest depth of nested objects that plainFields reads.
const maxFieldsDepth = 200

// plainFields reports whether json.Marshal would not change raw: nested objects such as {"f:spec":{"f:nodeName":{}}},
// without white space between tokens and without characters that it escapes.
func plainFields(raw []byte) bool {
	for depth := 0; ; {
		// An object begins here.
		if len(raw) < 2 || raw[0] != '{' || depth == maxFieldsDepth {
			return false
		}
		raw = raw[1:]
		depth++
		if raw[0] == '}' {
			for len(raw) > 0 && raw[0] == '}' && depth > 0 {
				raw = raw[1:]
				depth--
			}
			if depth == 0 {
				return len(raw) == 0
			}
			if len(raw) == 0 || raw[0] != ',' {
				return false
			}
			raw = raw[1:]
		}
		n := plainName(raw)
		if n == 0 || n == len(raw) || raw[n] != ':' {
			return false
		}
		raw = raw[n+1:]
	}
}

// plainName returns the length of the string at the beginning of doc, with its quotes. It returns 0 if doc does
// not begin with a string, or if json.Marshal would escape a character of the string.
func plainName(doc []byte) int {
	if len(doc) == 0 || doc[0] != '"' {
		return 0
	}
	for i := 1; i < len(doc); i++ {
		switch c := doc[i]; {
		case c < utf8.RuneSelf && plain[c]:
		case c == '"':
			return i + 1
		case c == '\\':
			if i++; i == len(doc) || strings.IndexByte(`"\/bfnrt`, doc[i]) < 0 {
				return 0
			}
		default:
			return 0
		}
	}
	return 0
}

func appendBytes(b, v []byte) []byte {
	if v == nil {
		return append(b, "null"...)
	}
	return appendNoNil(b, v)
}

func appendNoNil(b, v []byte) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, v)
	return append(b, '"')
}

const hexDigits = "0123456789abcdef"

// plain has the ASCII characters that need no escaping in a string.
var plain = func() (table [utf8.RuneSelf]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		table[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return table
}()

// appendString appends a string in quotes, like json.Marshal.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if plain[c] {
				i++
				continue
			}
			b = append(b, s[start:i]...)
			b = appendEscaped(b, c)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(append(b, s[start:i]...), `\ufffd`...)
			i++
			start = i
			continue
		case r == 0x2028 || r == 0x2029:
			b = append(append(b, s[start:i]...), `\u202`...)
			b = append(b, hexDigits[r&0xf])
			i += size
			start = i
			continue
		}
		i += size
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

func appendEscaped(b []byte, c byte) []byte {
	switch c {
	case '\\', '"':
		return append(b, '\\', c)
	case '\b':
		return append(b, '\\', 'b')
	case '\f':
		return append(b, '\\', 'f')
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	return append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}
