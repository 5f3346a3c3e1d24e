package scheme

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Reading a quantity takes time and memory for as many digits as it stands for:
// 1e-2000000000 keeps a processor busy for hours, three million digits for half a
// minute. No quantity has more than a thousand digits, so longer ones are refused
// before they are read.
const (
	mostExponentDigits = 3
	mostDigits         = 1 << 15
)

// CheckQuantities refuses a document, or a patch, that has a quantity of a size
// that is never meant. Nothing else in it is looked at.
func (d Decoder) CheckQuantities(media Media, body []byte) error {
	if media == YAML && len(longNumbers(body)) > 0 {
		if doc, err := yaml.YAMLToJSON(body); err == nil {
			body = doc
		}
	}
	if err := checkQuantities(body, d.New(), unmarshalJSON); err != nil {
		return d.cannotHandle(d.GVK, err)
	}
	return nil
}

func unmarshalJSON(doc []byte, obj runtime.Object) error {
	return kjson.UnmarshalCaseSensitivePreserveInts(doc, obj)
}

// checkQuantities finds out whether a long number in doc is a quantity. Text is
// free to hold such numbers: those that matter are found by decoding doc twice with
// other, harmless numbers in their places. Where a quantity comes out different,
// there stood one of them. like is an object of the type that doc is decoded into.
func checkQuantities(doc []byte, like runtime.Object, decode func([]byte, runtime.Object) error) error {
	numbers := longNumbers(doc)
	if len(numbers) == 0 {
		return nil
	}
	var found [2][]resource.Quantity
	for i, replace := range [2]func([]byte, number){small, zero} {
		copied := bytes.Clone(doc)
		for _, n := range numbers {
			replace(copied, n)
		}
		obj := reflect.New(reflect.TypeOf(like).Elem()).Interface().(runtime.Object)
		err := decode(copied, obj)
		if err != nil && slices.ContainsFunc(numbers, func(n number) bool { return n.exponent == 0 }) {
			// A number that stands for itself is none any more with zeros before it.
			return resource.ErrNumeric
		}
		found[i] = quantities(nil, reflect.ValueOf(obj))
	}
	if !slices.EqualFunc(found[0], found[1], func(a, b resource.Quantity) bool { return a.Format == b.Format && a.Cmp(b) == 0 }) {
		return resource.ErrSuffix
	}
	return nil
}

// number is a run of digits and decimal points in a document.
type number struct {
	start, end int
	// exponent is where the e before it stands; 0 for a number of its own.
	exponent int
}

// longNumbers are the numbers that are too long for a quantity or for its exponent.
func longNumbers(doc []byte) (found []number) {
	for i := 0; i < len(doc); i++ {
		if !inNumber(doc[i]) {
			continue
		}
		n := number{start: i, exponent: exponentOf(doc[:i])}
		for i < len(doc) && inNumber(doc[i]) {
			i++
		}
		n.end = i
		if size := n.end - n.start; size > mostDigits || n.exponent > 0 && size > mostExponentDigits {
			found = append(found, n)
		}
	}
	return found
}

func inNumber(c byte) bool { return c >= '0' && c <= '9' || c == '.' }

// exponentOf returns where the e stands that makes what follows before an exponent,
// 0 for none.
func exponentOf(before []byte) int {
	n := len(before)
	if n > 0 && (before[n-1] == '+' || before[n-1] == '-') {
		n--
	}
	if n >= 2 && (before[n-1] == 'e' || before[n-1] == 'E') && inNumber(before[n-2]) {
		return n - 1
	}
	return 0
}

// small and zero put other text of the same length in the place of a number, so
// that a quantity has another value or format: 1 and 0 for a number of its own, an
// exponent of 0 and none.
func small(doc []byte, n number) {
	fill(doc[n.start:n.end])
	if n.exponent == 0 {
		doc[n.end-1] = '1'
	}
}

func zero(doc []byte, n number) {
	if n.exponent > 0 {
		n.start = n.exponent
	}
	fill(doc[n.start:n.end])
}

func fill(b []byte) {
	for i := range b {
		b[i] = '0'
	}
}

var quantityType = reflect.TypeFor[resource.Quantity]()

// quantities appends the quantities in v, in a fixed order.
func quantities(found []resource.Quantity, v reflect.Value) []resource.Quantity {
	if v.IsValid() && v.Type() == quantityType {
		return append(found, v.Interface().(resource.Quantity))
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		found = quantities(found, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				found = quantities(found, v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			break
		}
		for i := range v.Len() {
			found = quantities(found, v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		for _, key := range keys {
			found = quantities(found, v.MapIndex(key))
		}
	}
	return found
}
