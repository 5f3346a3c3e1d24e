package structjson

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file makes JSON from a protobuf message without decoding it, so that no object is built that is used only
// once. The members of the JSON have the order of the Go struct. So the fields of a message are found first, and
// then written. Some messages are not supported: those with a type without a rule, a field in an unexpected
// encoding, or a struct that occurs twice. Then the part is decoded by the method of its type, or the caller
// decodes the whole message.

// AppendMessage appends the JSON of a protobuf message of the struct type t. The result is the same as if the
// message was decoded into a new struct and appended by Append. ok is false, and nothing is appended, if the
// message has to be decoded.
func AppendMessage(b, message []byte, t reflect.Type) (_ []byte, ok bool) {
	m := messageOf(t)
	if m == nil {
		return b, false
	}
	r := readers.Get().(*reader)
	n := len(b)
	b, ok = m.append(r, b, message)
	r.release()
	if !ok {
		return b[:n], false
	}
	return b, true
}

// A reader has the buffers for the values of one message and of the messages in it.
type reader struct {
	values []value // values[0] is not used: the position 0 means that there is no value
	spans  []span
	keys   []mapEntry
	// quantities has the JSON of quantities by their messages: most objects have the same few quantities.
	quantities map[string]string
}

// maxQuantities and maxQuantity bound the quantities that a reader remembers, and the bytes of each message.
const maxQuantities, maxQuantity = 256, 32

var readers = sync.Pool{New: func() any { return &reader{values: make([]value, 1), quantities: map[string]string{}} }}

// release returns r to readers, unless its buffers are large.
func (r *reader) release() {
	const most = 4096
	if cap(r.values) > most || cap(r.spans) > most || cap(r.keys) > most {
		return
	}
	clear(r.values[:cap(r.values)]) // they point into the message
	clear(r.keys[:cap(r.keys)])
	r.values, r.spans, r.keys = r.values[:1], r.spans[:0], r.keys[:0]
	readers.Put(r)
}

// messages caches the plans for messages: reflect.Type -> *message, nil for types that have to be decoded.
var messages sync.Map

func messageOf(t reflect.Type) *message {
	if found, ok := messages.Load(t); ok {
		return found.(*message)
	}
	made := map[reflect.Type]*message{}
	m := makeMessage(t, made)
	for t, one := range made {
		if one.failed {
			one = nil
		}
		messages.LoadOrStore(t, one)
	}
	if m == nil || m.failed {
		return nil
	}
	return m
}

// A message is the plan for the messages of a struct type.
type message struct {
	fields []messageField // in the order of the struct
	// byNumber has the position in fields of the field with a number, or -1.
	byNumber []int16
	// failed is set for a type that has to be decoded.
	failed bool
}

// messageField is a member of a struct.
type messageField struct {
	quoted string         // the name in quotes, with the colon
	kind   protowire.Type // of its values
	// inline is the plan of an embedded struct, whose members are written among those of the struct.
	inline *message
	// append writes the value of the member, from the values that the message has for the field.
	append func(b []byte, f found) ([]byte, bool)
	// omit reports whether the member is left out. If omit is nil, the member is never left out. Otherwise it is
	// also left out if the message has no value for the field.
	omit func(f found) bool
	// zero is the JSON of the value that omitzero leaves out; nil if the field does not have this option.
	zero []byte
}

// A value is one value of a field in a message: number for a varint, bytes for all other types.
type value struct {
	next   int32 // position in reader.values of the next value of the field; 0 if there is none
	number uint64
	bytes  []byte
}

// span has the positions in reader.values of the first and the last value of a field. Both are 0 if there is no
// value.
type span struct{ first, last int32 }

// found has the values that a message has for one field.
type found struct {
	r *reader
	span
}

func (f found) none() bool { return f.first == 0 }

// one returns the last value of a field, or zero if there is none.
func (f found) one() value {
	if f.none() {
		return value{}
	}
	return f.r.values[f.last]
}

// maxFieldNumber is the largest number of a field that has a plan.
const maxFieldNumber = 255

func (m *message) append(r *reader, b, text []byte) ([]byte, bool) {
	b = append(b, '{')
	b, ok := m.appendMembers(r, b, text, len(b))
	return append(b, '}'), ok
}

// appendMembers appends the members of a message. start is the position in b after the opening brace of the
// object.
func (m *message) appendMembers(r *reader, b, text []byte, start int) (_ []byte, ok bool) {
	values, spans := len(r.values), len(r.spans)
	if !m.find(r, text) {
		return b, false
	}
	for i := range m.fields {
		f := &m.fields[i]
		has := found{r, r.spans[spans+i]}
		if f.inline != nil {
			if has.first != has.last { // it would be merged
				return b, false
			}
			if b, ok = f.inline.appendMembers(r, b, has.one().bytes, start); !ok {
				return b, false
			}
			continue
		}
		if f.omit != nil && (has.none() || f.omit(has)) {
			continue
		}
		before := len(b)
		if before > start {
			b = append(b, ',')
		}
		b = append(b, f.quoted...)
		at := len(b)
		if b, ok = f.append(b, has); !ok {
			return b, false
		}
		if f.zero != nil && string(b[at:]) == string(f.zero) {
			b = b[:before]
		}
	}
	r.values, r.spans = r.values[:values], r.spans[:spans]
	return b, true
}

// find appends the values of a message to r.values, and a span for each field to r.spans. It returns false if the
// message is malformed, or has a field in another encoding than its type has.
func (m *message) find(r *reader, text []byte) bool {
	first := len(r.spans)
	r.spans = append(r.spans, make([]span, len(m.fields))...)
	spans := r.spans[first:]
	for len(text) > 0 {
		number, kind, v, n := nextValue(text)
		if n < 0 {
			return false
		}
		text = text[n:]
		if number >= uint64(len(m.byNumber)) || m.byNumber[number] < 0 {
			continue // a field of a later version
		}
		i := m.byNumber[number]
		if m.fields[i].kind != kind {
			return false
		}
		at := int32(len(r.values))
		if r.values = append(r.values, v); spans[i].first == 0 {
			spans[i].first = at
		} else {
			r.values[spans[i].last].next = at
		}
		spans[i].last = at
	}
	return true
}

// nextValue returns the first value of a message that is not empty, and the number and encoding of its field. The
// next value begins after n bytes. n is negative if the message is malformed, or if the encoding is neither varint
// nor bytes.
func nextValue(text []byte) (number uint64, kind protowire.Type, v value, n int) {
	tag, head := varint(text)
	if head < 0 || tag>>3 < uint64(protowire.MinValidNumber) || tag>>3 > uint64(protowire.MaxValidNumber) {
		return 0, 0, v, -1
	}
	x, size := varint(text[head:])
	n = head + size
	switch kind = protowire.Type(tag & 7); {
	case size < 0:
		return 0, 0, v, -1
	case kind == protowire.VarintType:
		v.number = x
	case kind == protowire.BytesType && x <= uint64(len(text)-n):
		v.bytes = text[n:][:x]
		n += int(x)
	default:
		return 0, 0, v, -1
	}
	return tag >> 3, kind, v, n
}

// varint is protowire.ConsumeVarint. Most numbers have one byte.
func varint(text []byte) (v uint64, n int) {
	if len(text) > 0 && text[0] < 0x80 {
		return uint64(text[0]), 1
	}
	return protowire.ConsumeVarint(text)
}

// makeMessage makes the plan of a type and of the types in it. It returns nil for a type that is not a message, or
// that has its own methods for JSON.
func makeMessage(t reflect.Type, made map[reflect.Type]*message) *message {
	if found, ok := messages.Load(t); ok {
		return found.(*message)
	}
	if m := made[t]; m != nil {
		return m
	}
	to := reflect.PointerTo(t)
	if t.Kind() != reflect.Struct || !to.Implements(messageType) || to.Implements(marshalerType) || to.Implements(textMarshalerType) {
		return nil
	}
	m := &message{}
	made[t] = m
	m.failed = planOf(t).members == nil || !m.make(t, made)
	return m
}

func (m *message) make(t reflect.Type, made map[reflect.Type]*message) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		number := messageNumber(f)
		if f.Type == typeMetaType && number == 0 {
			continue // it is in the envelope
		}
		if name == "-" || !f.IsExported() || number <= 0 || number > maxFieldNumber {
			return false
		}
		for len(m.byNumber) <= number {
			m.byNumber = append(m.byNumber, -1)
		}
		m.byNumber[number] = int16(len(m.fields))
		if f.Anonymous && name == "" {
			inline := makeMessage(f.Type, made)
			if inline == nil || inline.failed {
				return false
			}
			m.fields = append(m.fields, messageField{inline: inline, kind: protowire.BytesType})
			continue
		}
		if name == "" {
			name = f.Name
		}
		added, ok := makeField(f.Type, strings.Split(options, ","), made)
		if !ok {
			return false
		}
		added.quoted = string(appendString(nil, name)) + ":"
		m.fields = append(m.fields, added)
	}
	return true
}

// messageNumber returns the number of a field, as the generated code of Kubernetes has it in a tag; 0 if it has none.
func messageNumber(f reflect.StructField) int {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 0
	}
	number, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0
	}
	return number
}

// single appends one value of a field.
type single func(r *reader, b []byte, v value) ([]byte, bool)

// kindOf returns the encoding of the values of a type.
func kindOf(t reflect.Type) protowire.Type {
	switch t.Kind() {
	case reflect.Bool, reflect.Int32, reflect.Int64:
		return protowire.VarintType
	}
	return protowire.BytesType
}

func makeField(t reflect.Type, options []string, made map[reflect.Type]*message) (f messageField, ok bool) {
	empty, zero := slices.Contains(options, "omitempty"), slices.Contains(options, "omitzero")
	f.kind = kindOf(t)
	switch {
	case isList(t):
		element := singleOf(t.Elem(), made)
		if element == nil {
			return f, false
		}
		f.kind = kindOf(t.Elem())
		f.append = func(b []byte, has found) ([]byte, bool) { return appendList(b, has, element) }
	case t.Kind() == reflect.Map:
		if f.append = mapOf(t, made); f.append == nil {
			return f, false
		}
	case t.Kind() == reflect.Pointer:
		to := singleOf(t.Elem(), made)
		if to == nil {
			return f, false
		}
		f.kind = kindOf(t.Elem())
		// A decoder merges a message that occurs twice.
		once := t.Elem().Kind() == reflect.Struct
		f.append = func(b []byte, has found) ([]byte, bool) {
			if has.none() {
				return append(b, "null"...), true
			}
			if once && has.first != has.last {
				return b, false
			}
			return to(has.r, b, has.one())
		}
	default:
		one := singleOf(t, made)
		if one == nil {
			return f, false
		}
		return scalarField(t, one, empty, zero)
	}
	if empty || zero {
		f.omit = func(found) bool { return false } // if the message has the field, the member is written
	}
	return f, true
}

// scalarField is makeField for a type that is not a list, map or pointer.
func scalarField(t reflect.Type, one single, empty, zero bool) (f messageField, ok bool) {
	f.kind = kindOf(t)
	f.append = func(b []byte, has found) ([]byte, bool) { return one(has.r, b, has.one()) }
	switch t.Kind() {
	case reflect.String:
		if empty || zero {
			f.omit = func(has found) bool { return len(has.one().bytes) == 0 }
		}
	case reflect.Bool:
		if empty || zero {
			f.omit = func(has found) bool { return has.one().number == 0 }
		}
	case reflect.Int32:
		if empty || zero {
			f.omit = func(has found) bool { return int32(has.one().number) == 0 }
		}
	case reflect.Int64:
		if empty || zero {
			f.omit = func(has found) bool { return has.one().number == 0 }
		}
	case reflect.Struct:
		f.append = func(b []byte, has found) ([]byte, bool) {
			if has.first != has.last { // it would be merged
				return b, false
			}
			return one(has.r, b, has.one())
		}
		if zero {
			f.zero, _ = planOf(t).append(nil, reflect.New(t).UnsafePointer(), false)
		}
	case reflect.Slice:
		// Bytes, or a list that is a message.
		f.append = func(b []byte, has found) ([]byte, bool) {
			if has.none() {
				return append(b, "null"...), true
			}
			return one(has.r, b, has.one())
		}
		if !isBytes(t) {
			return f, false
		}
		if empty || zero {
			f.omit = func(has found) bool { return empty && len(has.one().bytes) == 0 }
		}
	default:
		return f, false
	}
	return f, true
}

func isBytes(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

// isList reports whether a type is a repeated field. A slice that is a message of its own (ExtraValue) is not.
func isList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && !isBytes(t) && !reflect.PointerTo(t).Implements(messageType)
}

func appendList(b []byte, has found, element single) (_ []byte, ok bool) {
	if has.none() {
		return append(b, "null"...), true
	}
	b = append(b, '[')
	for at := has.first; at != 0; at = has.r.values[at].next {
		if at != has.first {
			b = append(b, ',')
		}
		if b, ok = element(has.r, b, has.r.values[at]); !ok {
			return b, false
		}
	}
	return append(b, ']'), true
}

// singleOf returns the function that writes one value of type t as JSON, from its protobuf encoding. It returns nil
// if there is no rule for t; then the whole message is decoded.
func singleOf(t reflect.Type, made map[reflect.Type]*message) single {
	to := reflect.PointerTo(t)
	own := to.Implements(marshalerType) || to.Implements(textMarshalerType)
	switch {
	case t == reflect.TypeFor[metav1.FieldsV1]():
		return appendFieldsMessage
	case t == reflect.TypeFor[resource.Quantity]():
		return quantity(decoded(t))
	case own && to.Implements(messageType), t.Kind() == reflect.Slice && to.Implements(messageType):
		return decoded(t)
	case own:
		return nil
	}
	switch t.Kind() {
	case reflect.String:
		return func(_ *reader, b []byte, v value) ([]byte, bool) {
			// The string shares the memory of the message. appendString does not keep it.
			return appendString(b, unsafe.String(unsafe.SliceData(v.bytes), len(v.bytes))), true
		}
	case reflect.Bool:
		return func(_ *reader, b []byte, v value) ([]byte, bool) { return strconv.AppendBool(b, v.number != 0), true }
	case reflect.Int32:
		return func(_ *reader, b []byte, v value) ([]byte, bool) {
			return strconv.AppendInt(b, int64(int32(v.number)), 10), true
		}
	case reflect.Int64:
		return func(_ *reader, b []byte, v value) ([]byte, bool) {
			return strconv.AppendInt(b, int64(v.number), 10), true
		}
	case reflect.Slice:
		if isBytes(t) {
			return func(_ *reader, b []byte, v value) ([]byte, bool) { return appendNoNil(b, v.bytes), true }
		}
	case reflect.Struct:
		m := makeMessage(t, made)
		switch {
		case m == nil && to.Implements(messageType):
			return decoded(t)
		case m == nil:
			return nil
		}
		byDecoding := decoded(t)
		return func(r *reader, b []byte, v value) ([]byte, bool) {
			if m.failed {
				return byDecoding(r, b, v)
			}
			return m.append(r, b, v.bytes)
		}
	}
	return nil
}

// decoded returns the function for a type that is decoded by its own method.
func decoded(t reflect.Type) single {
	p := planOf(t)
	return func(_ *reader, b []byte, v value) ([]byte, bool) {
		into := reflect.New(t)
		if t.Kind() == reflect.Slice { // a value of a map, which is never nil
			into.Elem().Set(reflect.MakeSlice(t, 0, 0))
		}
		if err := into.Interface().(interface{ Unmarshal([]byte) error }).Unmarshal(v.bytes); err != nil {
			return b, false
		}
		b, err := p.append(b, into.UnsafePointer(), false)
		return b, err == nil
	}
}

// quantity returns the function for a resource.Quantity, which caches the results of decode. decode is the
// function that decodes the quantity by its own method.
func quantity(decode single) single {
	return func(r *reader, b []byte, v value) ([]byte, bool) {
		if text, ok := r.quantities[string(v.bytes)]; ok {
			return append(b, text...), true
		}
		start := len(b)
		b, ok := decode(r, b, v)
		if ok && len(r.quantities) < maxQuantities && len(v.bytes) <= maxQuantity {
			r.quantities[string(v.bytes)] = string(b[start:])
		}
		return b, ok
	}
}

// appendFieldsMessage appends a FieldsV1, whose message has JSON in its first field.
func appendFieldsMessage(_ *reader, b []byte, v value) ([]byte, bool) {
	var fields metav1.FieldsV1
	for text := v.bytes; len(text) > 0; {
		number, kind, raw, n := nextValue(text)
		if n < 0 || number != 1 || kind != protowire.BytesType {
			return b, false
		}
		fields.Raw, text = raw.bytes, text[n:]
	}
	b, err := appendFields(b, unsafe.Pointer(&fields), false)
	return b, err == nil
}

// mapOf returns the function for a map with keys that are strings, nil if its values have no function.
func mapOf(t reflect.Type, made map[reflect.Type]*message) func(b []byte, has found) ([]byte, bool) {
	key := t.Key()
	if key.Kind() != reflect.String || key.Implements(textMarshalerType) || reflect.PointerTo(key).Implements(textUnmarshalerType) {
		return nil
	}
	one := singleOf(t.Elem(), made)
	if one == nil {
		return nil
	}
	kind := kindOf(t.Elem())
	return func(b []byte, has found) (_ []byte, ok bool) {
		if has.none() {
			return append(b, "null"...), true
		}
		r, start := has.r, len(has.r.keys)
		for at := has.first; at != 0; at = r.values[at].next {
			e, ok := entryOf(r.values[at].bytes, kind)
			if !ok {
				return b, false
			}
			r.keys = append(r.keys, e)
		}
		entries := r.keys[start:]
		// The last of several entries with the same key counts.
		slices.SortStableFunc(entries, func(x, y mapEntry) int { return strings.Compare(x.key, y.key) })
		b = append(b, '{')
		first := len(b)
		for i, e := range entries {
			if i+1 < len(entries) && entries[i+1].key == e.key {
				continue
			}
			if len(b) > first {
				b = append(b, ',')
			}
			b = append(appendString(b, e.key), ':')
			if b, ok = one(r, b, e.value); !ok {
				return b, false
			}
		}
		r.keys = r.keys[:start]
		return append(b, '}'), true
	}
}

// mapEntry is a key with its value. key shares the memory of the message.
type mapEntry struct {
	key   string
	value value
}

// entryOf reads the message of an entry of a map: the key in field 1, the value in field 2.
func entryOf(text []byte, kind protowire.Type) (e mapEntry, ok bool) {
	for len(text) > 0 {
		number, at, v, n := nextValue(text)
		if n < 0 || number > 2 || number == 1 && at != protowire.BytesType || number == 2 && at != kind {
			return e, false
		}
		text = text[n:]
		if number == 1 {
			e.key = unsafe.String(unsafe.SliceData(v.bytes), len(v.bytes))
		} else {
			e.value = v
		}
	}
	return e, true
}
