package structjson

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strconv"
	"unicode/utf8"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

var (
	textMarshalerType   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	stringMapType       = reflect.TypeFor[map[string]string]()
)

// maxDepth is the deepest nesting that Decode accepts.
const maxDepth = 200

// Decode decodes a document into v, a pointer to a struct with its zero value, like the strict
// decoder of sigs.k8s.io/json. It returns false if the document has to be decoded by the
// general decoder: it is not valid, has values of other types, unknown or duplicate members,
// or is nested deeply. The content of v is undefined then.
func Decode(doc []byte, v any) bool {
	value := reflect.ValueOf(v)
	if value.Kind() != reflect.Pointer || value.IsNil() || value.Elem().Kind() != reflect.Struct {
		return false
	}
	d := decoder{doc: doc, texts: string(doc)}
	planOf(value.Type().Elem()).decode(&d, value.UnsafePointer())
	d.space()
	return !d.failed && d.at == len(d.doc)
}

// decoder decodes one document. After a failure it does nothing.
type decoder struct {
	doc []byte
	// texts is a copy of doc, which the strings of the result are parts of.
	texts  string
	at     int
	depth  int
	failed bool
}

// unknown makes Decode return false.
func (d *decoder) unknown() {
	d.failed = true
	d.at = len(d.doc)
}

// space skips white space.
func (d *decoder) space() {
	for d.at < len(d.doc) {
		switch d.doc[d.at] {
		case ' ', '\n', '\t', '\r':
			d.at++
		default:
			return
		}
	}
}

// next skips white space and returns the next character, 0 at the end.
func (d *decoder) next() byte {
	d.space()
	if d.at >= len(d.doc) {
		return 0
	}
	return d.doc[d.at]
}

// take skips white space and the character c. It returns false if c is not the next character.
func (d *decoder) take(c byte) bool {
	if d.next() != c {
		return false
	}
	d.at++
	return true
}

// word skips a literal such as null, if it is next.
func (d *decoder) word(text string) bool {
	d.space()
	if len(d.doc)-d.at < len(text) || string(d.doc[d.at:d.at+len(text)]) != text {
		return false
	}
	d.at += len(text)
	return true
}

// null skips a null, if it is next.
func (d *decoder) null() bool { return d.next() == 'n' && d.word("null") }

func (d *decoder) enter() bool {
	if d.depth++; d.depth > maxDepth {
		d.unknown()
	}
	return !d.failed
}

func (me *members) decode(d *decoder, p unsafe.Pointer) {
	if d.null() {
		return
	}
	if !d.take('{') || !d.enter() {
		d.unknown()
		return
	}
	var few [2]uint64
	seen := few[:]
	if n := (len(me.list) + 63) / 64; n > len(seen) {
		seen = make([]uint64, n)
	}
	expected := 0 // the member that most documents have next
	for first := true; ; first = false {
		if d.take('}') {
			d.depth--
			return
		}
		if !first && !d.take(',') {
			d.unknown()
			return
		}
		name := d.name()
		if d.failed || !d.take(':') {
			d.unknown()
			return
		}
		i := expected
		if i >= len(me.list) || me.list[i].name != string(name) {
			var known bool
			if i, known = me.byName[string(name)]; !known {
				d.unknown()
				return
			}
		}
		if seen[i/64]&(1<<(i%64)) != 0 {
			d.unknown()
			return
		}
		seen[i/64] |= 1 << (i % 64)
		expected = i + 1
		me.list[i].plan.decode(d, unsafe.Add(p, me.list[i].offset))
		if d.failed {
			return
		}
		if c := d.next(); c != ',' && c != '}' {
			d.unknown()
			return
		}
	}
}

// name returns the next name of a member. Names with escapes are rare.
func (d *decoder) name() []byte {
	if !d.take('"') {
		d.unknown()
		return nil
	}
	start := d.at
	for ; d.at < len(d.doc); d.at++ {
		switch c := d.doc[d.at]; {
		case c == '"':
			d.at++
			return d.doc[start : d.at-1]
		case c < ' ' || c == '\\' || c >= utf8.RuneSelf:
			d.unknown()
			return nil
		}
	}
	d.unknown()
	return nil
}

// string decodes a string; null is "".
func (d *decoder) string() string {
	if d.null() {
		return ""
	}
	return d.text()
}

func (d *decoder) text() string {
	if !d.take('"') {
		d.unknown()
		return ""
	}
	start := d.at
	escaped, ascii := false, true
	for ; d.at < len(d.doc); d.at++ {
		switch c := d.doc[d.at]; {
		case c == '"':
			raw := d.doc[start:d.at]
			d.at++
			switch {
			case escaped:
				var out string
				if !ascii && !utf8.Valid(raw) || json.Unmarshal(d.doc[start-1:d.at], &out) != nil {
					d.unknown()
				}
				return out
			case !ascii && !utf8.Valid(raw):
				d.unknown()
				return ""
			}
			return d.texts[start : d.at-1]
		case c == '\\':
			escaped = true
			d.at++
		case c < ' ':
			d.unknown()
			return ""
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	d.unknown()
	return ""
}

func (d *decoder) bool() bool {
	switch d.next() {
	case 'n':
		if d.word("null") {
			return false
		}
	case 't':
		if d.word("true") {
			return true
		}
	case 'f':
		if d.word("false") {
			return false
		}
	}
	d.unknown()
	return false
}

// int decodes an integer with that many bits; null is 0.
func (d *decoder) int(bits int) int64 {
	if d.null() {
		return 0
	}
	start := d.at
	if d.at < len(d.doc) && d.doc[d.at] == '-' {
		d.at++
	}
	digits := d.at
	for d.at < len(d.doc) && d.doc[d.at] >= '0' && d.doc[d.at] <= '9' {
		d.at++
	}
	if d.at == digits || d.doc[digits] == '0' && d.at > digits+1 {
		d.unknown()
		return 0
	}
	if d.at < len(d.doc) {
		switch d.doc[d.at] {
		case '.', 'e', 'E':
			d.unknown()
			return 0
		}
	}
	n, err := strconv.ParseInt(string(d.doc[start:d.at]), 10, bits)
	if err != nil {
		d.unknown()
	}
	return n
}

func decodeBytes(d *decoder, at unsafe.Pointer) {
	if d.null() {
		return
	}
	text := d.text()
	if d.failed {
		return
	}
	out, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		d.unknown()
		return
	}
	*(*[]byte)(at) = out
}

// slice decodes a list into the slice of type t at p. The first allocation has room for one or a few elements,
// depending on their size; it grows with the list.
func (d *decoder) slice(t reflect.Type, element *plan, p unsafe.Pointer) {
	if d.null() {
		return
	}
	if !d.take('[') || !d.enter() {
		d.unknown()
		return
	}
	list := reflect.NewAt(t, p).Elem()
	if d.take(']') {
		d.depth--
		list.Set(reflect.MakeSlice(t, 0, 0))
		return
	}
	const few, fewBytes = 4, 256
	size := t.Elem().Size()
	h := (*sliceHeader)(p)
	for n := 0; ; n++ {
		if n == h.cap {
			list.Grow(max(n, 1, min(few, fewBytes/int(max(size, 1)))))
		}
		h.len = n + 1
		element.decode(d, unsafe.Add(h.data, uintptr(n)*size))
		switch {
		case d.failed:
			return
		case d.take(','):
		case d.take(']'):
			d.depth--
			return
		default:
			d.unknown()
			return
		}
	}
}

// entries decodes an object that becomes a map. It calls begin first, unless the value is null. It calls entry for
// each member; entry decodes the value, and returns false if the map already has the key.
func (d *decoder) entries(begin func(), entry func(key string) bool) {
	if d.null() {
		return
	}
	if !d.take('{') || !d.enter() {
		d.unknown()
		return
	}
	begin()
	if d.take('}') {
		d.depth--
		return
	}
	for {
		if d.next() != '"' {
			d.unknown()
			return
		}
		key := d.text()
		if d.failed || !d.take(':') || !entry(key) {
			d.unknown()
			return
		}
		switch {
		case d.failed:
			return
		case d.take(','):
		case d.take('}'):
			d.depth--
			return
		default:
			d.unknown()
			return
		}
	}
}

// mapping decodes a map of type t.
func (d *decoder) mapping(t reflect.Type, element *plan, p unsafe.Pointer) {
	m := reflect.NewAt(t, p).Elem()
	d.entries(func() { m.Set(reflect.MakeMap(t)) }, func(key string) bool {
		k := reflect.ValueOf(key).Convert(t.Key())
		if m.MapIndex(k).IsValid() {
			return false
		}
		value := reflect.New(t.Elem())
		element.decode(d, value.UnsafePointer())
		m.SetMapIndex(k, value.Elem())
		return true
	})
}

// decodeStringMap decodes a map[string]string.
func decodeStringMap(d *decoder, p unsafe.Pointer) {
	m := (*map[string]string)(p)
	d.entries(func() { *m = map[string]string{} }, func(key string) bool {
		before := len(*m)
		(*m)[key] = d.string()
		return len(*m) > before
	})
}

// decodeResources decodes a ResourceList.
func decodeResources(d *decoder, p unsafe.Pointer) {
	m := (*corev1.ResourceList)(p)
	d.entries(func() { *m = corev1.ResourceList{} }, func(key string) bool {
		before := len(*m)
		var q resource.Quantity
		d.quantity(unsafe.Pointer(&q))
		(*m)[corev1.ResourceName(key)] = q
		return len(*m) > before
	})
}

// decodeByItself returns the function that decodes a type by its method UnmarshalJSON. If the type does not have
// this method, the function makes Decode return false.
func decodeByItself(t reflect.Type) func(*decoder, unsafe.Pointer) {
	if !reflect.PointerTo(t).Implements(unmarshalerType) {
		return func(d *decoder, _ unsafe.Pointer) { d.unknown() }
	}
	return func(d *decoder, at unsafe.Pointer) {
		raw := d.value()
		if d.failed {
			return
		}
		if reflect.NewAt(t, at).Interface().(json.Unmarshaler).UnmarshalJSON(raw) != nil {
			d.unknown()
		}
	}
}

// quantity decodes a resource.Quantity. The time to parse one grows with the number of its digits when it is written without
// exponent. So this method decodes only short ones and leaves the others to the general decoder.
func (d *decoder) quantity(p unsafe.Pointer) {
	const longest, longestExponent = 64, len("e999")
	raw := d.value()
	if d.failed {
		return
	}
	text := bytes.TrimSuffix(raw, []byte{'"'})
	exponent := bytes.IndexAny(text, `eE\`) // or an escape sequence, which may stand for it
	if len(text) > longest || exponent >= 0 && len(text)-exponent > longestExponent ||
		(*resource.Quantity)(p).UnmarshalJSON(raw) != nil {
		d.unknown()
	}
}

// value skips a value and returns its text. encoding/json checks values that are not simple.
func (d *decoder) value() []byte {
	start := func() int { d.space(); return d.at }()
	switch d.next() {
	case '"':
		d.text()
	case '{', '[':
		d.skip()
		if !d.failed && !json.Valid(d.doc[start:d.at]) {
			d.unknown()
		}
	default:
		for d.at < len(d.doc) {
			switch d.doc[d.at] {
			case ',', '}', ']', ' ', '\n', '\t', '\r':
				if !json.Valid(d.doc[start:d.at]) {
					d.unknown()
				}
				return d.doc[start:min(d.at, len(d.doc))]
			}
			d.at++
		}
		d.unknown()
	}
	if d.failed {
		return nil
	}
	return d.doc[start:d.at]
}

// skip skips an object or a list.
func (d *decoder) skip() {
	for depth := 0; d.at < len(d.doc); {
		switch d.doc[d.at] {
		case '{', '[':
			if depth++; depth > maxDepth {
				d.unknown()
				return
			}
		case '}', ']':
			depth--
		case '"':
			if d.text(); d.failed {
				return
			}
			continue
		}
		if d.at++; depth == 0 {
			return
		}
	}
	d.unknown()
}
