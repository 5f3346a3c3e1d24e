package scheme

import "math"

// EqualTrees reports whether two trees of JSON are equal. Numbers of different Go types are different: the integer
// 1 and the float 1.0. kube-apiserver compares the values of custom resources in this way.
func EqualTrees(a, b any) bool { return equalTrees(a, b, false) }

// EqualTreeValues is like EqualTrees, but compares numbers by value: the integer 1 and the float 1.0 are equal.
// kube-apiserver compares the fields of managedFields in this way.
func EqualTreeValues(a, b any) bool { return equalTrees(a, b, true) }

func equalTrees(a, b any, byValue bool) bool {
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return ok && a == b
	case int64, float64, int:
		if byValue {
			return equalNumbers(a, b)
		}
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) || (a == nil) != (b == nil) {
			return false
		}
		for i := range a {
			if !equalTrees(a[i], b[i], byValue) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) || (a == nil) != (b == nil) {
			return false
		}
		for name, v := range a {
			other, found := b[name]
			if !found || !equalTrees(v, other, byValue) {
				return false
			}
		}
		return true
	}
	switch b.(type) {
	case map[string]any, []any: // which == cannot compare
		return false
	}
	return a == b
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

// float returns a number as a float64, and NaN for all other values.
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
