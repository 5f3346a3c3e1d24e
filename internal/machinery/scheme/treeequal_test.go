package scheme

import "testing"

// TestEqualTrees compares pairs of trees in both meanings.
func TestEqualTrees(t *testing.T) {
	object := func(v any) any { return map[string]any{"a": []any{v}} }
	for _, c := range []struct {
		a, b        any
		equal, same bool // by EqualTrees and by EqualTreeValues
	}{
		{int64(1), int64(1), true, true},
		{int64(1), 1.0, false, true},
		{1.0, int64(1), false, true},
		{1.5, int64(1), false, false},
		{int64(1), "1", false, false},
		{int64(0), nil, false, false},
		{nil, nil, true, true},
		{true, true, true, true},
		{"", nil, false, false},
		{[]any{}, map[string]any{}, false, false},
		{[]any{}, []any(nil), false, false},
		{"a", []any{"a"}, false, false},
	} {
		for _, wrap := range []func(any) any{func(v any) any { return v }, object} {
			a, b := wrap(c.a), wrap(c.b)
			if EqualTrees(a, b) != c.equal || EqualTreeValues(a, b) != c.same {
				t.Errorf("%#v and %#v: %v, %v", a, b, EqualTrees(a, b), EqualTreeValues(a, b))
			}
		}
	}
}
