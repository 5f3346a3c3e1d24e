package structuralschema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// kindOf returns the kind of a scalar. A number is an integer if it was written without a fraction or exponent.
func kindOf(x any) kind {
	switch x.(type) {
	case string:
		return stringKind
	case int64:
		return integerKind
	case float64:
		return numberKind
	case bool:
		return booleanKind
	}
	return 0
}

// String returns the type or types as error messages write them.
func (k kind) String() string {
	switch k {
	case objectKind:
		return "object"
	case arrayKind:
		return "array"
	case stringKind:
		return "string"
	case integerKind:
		return "integer"
	case numberKind:
		return "number"
	case booleanKind:
		return "boolean"
	case integerKind | stringKind:
		return "integer,string"
	}
	return ""
}

// checkType checks the type of a value that is not null. It counts as two passed checks: by itself and as a group.
// A format without a type is also checked here.
func (ch *checks) checkType(x any, is, allowed kind, values *Values) int {
	format := ""
	if values != nil {
		format = values.checked
	}
	if allowed == 0 && format == "" {
		return 0
	}
	matches := is&allowed != 0 || is == integerKind && allowed&numberKind != 0
	if n, ok := x.(float64); ok && !matches && allowed&integerKind != 0 {
		matches = isIntegral(n)
	}
	sequence := is == stringKind || is == arrayKind
	switch {
	case matches:
		return 2
	case format != "" && !sequence && format != storedFormat(is):
		ch.wrongType(format, storedFormat(is))
		return 1
	case format != "" && sequence && allowed&(integerKind|numberKind) == 0:
		return 2 // the format check handles strings; lists have no formats
	}
	if allowed == unknownKind {
		ch.wrongType(values.unknown, is.String())
		return 1
	}
	ch.wrongType(allowed.String(), is.String())
	return 1
}

// storedFormat returns the format of a decoded number.
func storedFormat(is kind) string {
	switch is {
	case integerKind:
		return "int64"
	case numberKind:
		return "float64"
	}
	return ""
}

// numeric checks the limits of a number. It does so whatever the type of the node is.
func (ch *checks) numeric(values *Values, x any, allowed kind) int {
	format := numberFormat(values.checked, allowed)
	ch.inRange(x, allowed, format)
	if factor := values.MultipleOf; factor != nil {
		ch.multiple(x, *factor, ch.boundInRange("MultipleOf", *factor, allowed, format))
	}
	if min := values.Minimum; min != nil {
		matches := ch.boundInRange("Minimum boundary", *min, allowed, format)
		ch.bounded(x, *min, matches, minimum, values.ExclusiveMinimum)
	}
	if max := values.Maximum; max != nil {
		matches := ch.boundInRange("Maximum boundary", *max, allowed, format)
		ch.bounded(x, *max, matches, maximum, values.ExclusiveMaximum)
	}
	return 2
}

// numberFormat returns format if it limits numbers of the type, "" otherwise.
func numberFormat(format string, allowed kind) string {
	switch {
	case allowed == integerKind && (format == "int32" || format == "int64"),
		allowed == numberKind && (format == "float" || format == "double"):
		return format
	}
	return ""
}

// side is the side of a bound on which numbers are invalid.
type side int

const (
	minimum side = -1
	maximum side = 1
)

// text returns the message for numbers on the wrong side.
func (s side) text(exclusive bool) string {
	switch {
	case s == minimum && exclusive:
		return "should be greater than %v"
	case s == minimum:
		return "should be greater than or equal to %v"
	case exclusive:
		return "should be less than %v"
	}
	return "should be less than or equal to %v"
}

// bounded checks a number by a bound. An integer is compared with the integral part of the bound if the bound is in
// the range of its type.
func (ch *checks) bounded(x any, bound float64, matches bool, wrong side, exclusive bool) {
	n, whole := x.(int64)
	if whole && matches {
		if c := side(cmp.Compare(n, int64(bound))); c == wrong || exclusive && c == 0 {
			ch.invalid(n, wrong.text(exclusive), int64(bound))
		}
		return
	}
	f := asFloat(x)
	if c := side(cmp.Compare(f, bound)); c == wrong || exclusive && c == 0 {
		ch.invalid(f, wrong.text(exclusive), bound)
	}
}

// multiple checks that a number is a multiple of factor. If factor is in the range of the type (matches), an
// integer only has to be a multiple of the integral part of factor.
func (ch *checks) multiple(x any, factor float64, matches bool) {
	if n, ok := x.(int64); ok && matches {
		whole := int64(factor)
		switch {
		case whole <= 0:
			ch.notPositive(whole)
		case n%whole != 0:
			ch.invalid(x, "should be a multiple of %v", whole)
		}
		return
	}
	n := asFloat(x)
	if factor <= 0 {
		ch.notPositive(factor)
		return
	}
	quotient := n / factor
	if factor < 1 {
		quotient = 1 / factor * n
	}
	if !isIntegral(quotient) {
		ch.invalid(n, "should be a multiple of %v", factor)
	}
}

func (ch *checks) notPositive(factor any) {
	if ch.fails() {
		ch.add(
			field.Invalid(ch.field(), factor, fmt.Sprintf("factor MultipleOf declared for %s must be positive: %v", ch.pathText(), factor)),
		)
	}
}

// inRange checks that a number is in the range of its type and format. It always returns 0 passed checks.
func (ch *checks) inRange(x any, allowed kind, format string) int {
	if !inFormatRange(x, allowed, format) {
		ch.outOfRange("Checked", allowed, format)
	}
	return 0
}

// boundInRange checks that a bound is in the range of the type and format.
func (ch *checks) boundInRange(what string, bound float64, allowed kind, format string) bool {
	if inFormatRange(bound, allowed, format) {
		return true
	}
	ch.outOfRange(what, allowed, format)
	return false
}

func (ch *checks) outOfRange(what string, allowed kind, format string) {
	if format == "" {
		ch.whole("%s value must be of type %s (default format) in %s", what, allowed.String(), ch.displayPath())
		return
	}
	ch.whole("%s value must be of type %s with format %s in %s", what, allowed.String(), format, ch.displayPath())
}

// inFormatRange reports whether a number is in the range of the type and format.
func inFormatRange(x any, allowed kind, format string) bool {
	switch allowed {
	case integerKind:
		if n, ok := x.(int64); ok {
			return format != "int32" || n == int64(int32(n))
		}
		n := asFloat(x)
		if n != math.Trunc(n) {
			return false
		}
		if format == "int32" {
			return n >= math.MinInt32 && n <= math.MaxInt32
		}
		// kube-apiserver converts the number to its shortest text and back; -2^63 is then out of range.
		return n > math.MinInt64 && n < 1<<63
	case numberKind:
		return format != "float" || !math.IsInf(float64(float32(asFloat(x))), 0)
	}
	return true
}

func asFloat(x any) float64 {
	switch x := x.(type) {
	case int64:
		return float64(x)
	case float64:
		return x
	}
	return math.NaN()
}

// maxInteger is the largest integer up to which every integer has an exact float64.
const maxInteger = 1<<53 - 1

// isIntegral reports whether a number counts as an integer: it is an integer, or exceeds an integer by a relative
// error below 1e-9.
func isIntegral(n float64) bool {
	if math.IsNaN(n) || n < -maxInteger || n > maxInteger {
		return false
	}
	whole := math.Trunc(n)
	if n == whole {
		return true
	}
	return n >= 1 && (n-whole)/(n+whole) < 1e-9
}

// oneOf reports whether a value equals the allowed value of an enum. A number is first converted to the type of the
// allowed one, so a float may lose its fraction; an integer also equals the string with the character of that code.
// kube-apiserver compares the same way.
func oneOf(x, allowed any) bool {
	switch x := x.(type) {
	case int64:
		switch allowed := allowed.(type) {
		case int64:
			return x == allowed
		case float64:
			return float64(x) == allowed
		case string:
			return allowed == string(rune(min(max(x, -1), math.MaxInt32)))
		}
		return false
	case float64:
		switch allowed := allowed.(type) {
		case int64:
			return int64(x) == allowed
		case float64:
			return x == allowed
		}
		return false
	case nil:
		return false
	}
	return scheme.EqualTrees(x, allowed)
}

// enumTexts returns the allowed values as error messages write them.
func enumTexts(allowed []any) []string {
	out := make([]string, len(allowed))
	for i, v := range allowed {
		if s, ok := v.(string); ok {
			out[i] = s
			continue
		}
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // it was decoded from JSON
		}
		out[i] = string(text)
	}
	return out
}
