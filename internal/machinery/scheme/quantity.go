package scheme

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// Parsing a quantity takes time and memory in proportion to its number of digits, written out without exponent:
// 1e-2000000000 would take hours, three million digits half a minute. So texts of more than mostDigits bytes, and
// exponents of more than mostExponentDigits digits, are refused before they are parsed.
const (
	mostExponentDigits = 3
	mostDigits         = 1 << 15
)

// CheckQuantity returns an error for a quantity that would be expensive to parse. It does not
// check whether the text is a valid quantity.
func CheckQuantity(text string) error {
	if len(text) > mostDigits {
		return resource.ErrNumeric
	}
	for i := 0; i < len(text); i++ {
		if text[i] != 'e' && text[i] != 'E' {
			continue
		}
		digits := strings.TrimLeft(text[i+1:], "+-")
		n := 0
		for n < len(digits) && digits[n] >= '0' && digits[n] <= '9' {
			n++
		}
		if n > mostExponentDigits {
			return resource.ErrSuffix
		}
	}
	return nil
}

// CheckQuantities checks the quantities in a decoded value that will be converted to an object
// of the type of like.
func CheckQuantities(like runtime.Object, tree any) error {
	return fieldsOf(reflect.TypeOf(like)).checkTree(tree)
}

// checkDocument is CheckQuantities for a JSON document that package structjson has not decoded. It also checks values that
// a later duplicate replaces, because the general decoder parses them, too.
func checkDocument(doc []byte, like runtime.Object) error {
	if !suspicious(doc) || !json.Valid(doc) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	return fieldsOf(reflect.TypeOf(like)).checkTokens(d)
}

// suspicious reports whether a document may contain an expensive quantity: it has a long
// number, or escaped characters, which may be a part of a number.
func suspicious(doc []byte) bool {
	if bytes.Contains(doc, []byte(`\u`)) {
		return true
	}
	for i := 0; i < len(doc); i++ {
		start := i
		for i < len(doc) && inNumber(doc[i]) {
			i++
		}
		if size := i - start; size > mostDigits || size > mostExponentDigits && afterExponent(doc[:start]) {
			return true
		}
	}
	return false
}

func inNumber(c byte) bool { return c >= '0' && c <= '9' || c == '.' }

// afterExponent reports whether before ends with the beginning of an exponent.
func afterExponent(before []byte) bool {
	before = bytes.TrimRight(before, "+-")
	return len(before) > 0 && (before[len(before)-1] == 'e' || before[len(before)-1] == 'E')
}

// jsonFields describes where quantities are in the JSON of a Go type. A nil *jsonFields has
// none.
type jsonFields struct {
	quantity bool
	members  map[string]*jsonFields
	// each describes the elements of a list, or the values of a map.
	each *jsonFields
}

func (f *jsonFields) member(name string) *jsonFields {
	switch {
	case f == nil:
		return nil
	case f.members != nil:
		return f.members[name]
	}
	return f.each
}

func (f *jsonFields) element() *jsonFields {
	if f == nil {
		return nil
	}
	return f.each
}

// checkTree checks the quantities in a decoded value.
func (f *jsonFields) checkTree(value any) error {
	if f == nil {
		return nil
	}
	switch value := value.(type) {
	case string:
		if f.quantity {
			return CheckQuantity(value)
		}
	case map[string]any:
		for name, below := range value {
			if err := f.member(name).checkTree(below); err != nil {
				return err
			}
		}
	case []any:
		for _, below := range value {
			if err := f.each.checkTree(below); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkTokens checks the quantities in the next value of d.
func (f *jsonFields) checkTokens(d *json.Decoder) error {
	token, err := d.Token()
	if err != nil {
		return nil // not valid JSON; the decoder returns an error for that
	}
	text := ""
	switch token := token.(type) {
	case json.Delim:
		return f.checkMembers(d, token)
	case string:
		text = token
	case json.Number:
		text = token.String()
	}
	if f != nil && f.quantity {
		return CheckQuantity(text)
	}
	return nil
}

func (f *jsonFields) checkMembers(d *json.Decoder, open json.Delim) error {
	for d.More() {
		below := f.element()
		if open == '{' {
			name, err := d.Token()
			if err != nil {
				return nil
			}
			below = f.member(name.(string))
		}
		if err := below.checkTokens(d); err != nil {
			return err
		}
	}
	_, _ = d.Token() // the closing delimiter
	return nil
}

var quantityType = reflect.TypeFor[resource.Quantity]()

// quantityFields caches the results of fieldsOf: reflect.Type -> *jsonFields.
var quantityFields sync.Map

// fieldsOf returns where quantities are in a type.
func fieldsOf(t reflect.Type) *jsonFields {
	if known, ok := quantityFields.Load(t); ok {
		return known.(*jsonFields)
	}
	found := findQuantities(t, map[reflect.Type]*jsonFields{})
	quantityFields.Store(t, found)
	return found
}

func findQuantities(t reflect.Type, known map[reflect.Type]*jsonFields) *jsonFields {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if f, ok := known[t]; ok {
		return f
	}
	f := &jsonFields{quantity: t == quantityType}
	known[t] = f
	switch {
	case f.quantity:
	case t.Kind() == reflect.Struct:
		f.members = map[string]*jsonFields{}
		addMembers(f.members, t, known)
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		f.each = findQuantities(t.Elem(), known)
	}
	return f
}

// addMembers adds the members of a struct, and of the structs that are embedded in it.
func addMembers(members map[string]*jsonFields, t reflect.Type, known map[reflect.Type]*jsonFields) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inline := field.Type
		if inline.Kind() == reflect.Pointer {
			inline = inline.Elem()
		}
		switch {
		case name == "-" || !field.IsExported():
		case name != "":
			members[name] = findQuantities(field.Type, known)
		case inline.Kind() == reflect.Struct:
			addMembers(members, inline, known)
		}
	}
}
