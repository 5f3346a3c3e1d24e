package managedfields

import (
	"slices"
	"strings"
	"testing"
)

// TestArrange has the example of arrange and the rules beside it. Items of two lists are letters.
func TestArrange(t *testing.T) {
	keys := func(list string) []keyed {
		out := make([]keyed, len(list))
		for i := range list {
			out[i] = keyed{parts: []part{{kind: textPart, text: list[i : i+1]}}, at: i}
		}
		return out
	}
	for _, c := range []struct{ left, right, want string }{
		{"axby", "ba", "xbya"},
		{"abc", "abc", "abc"},
		{"abc", "cba", "cba"},
		{"abc", "b", "abc"},
		{"abc", "xby", "axbcy"},
		{"abc", "xyz", "abcxyz"},
		{"abc", "dcab", "dcab"},
		{"", "ba", "ba"},
	} {
		order, sorted, ok := arrange(keys(c.left), keys(c.right))
		got := ""
		for _, pair := range order {
			if pair.left >= 0 {
				got += c.left[pair.left : pair.left+1]
			} else {
				got += c.right[pair.right : pair.right+1]
			}
			if both := pair.left >= 0 && pair.right >= 0; both && c.left[pair.left] != c.right[pair.right] {
				t.Errorf("%s and %s: pairs %c with %c", c.left, c.right, c.left[pair.left], c.right[pair.right])
			} else if !both && pair.left >= 0 && strings.Contains(c.right, c.left[pair.left:pair.left+1]) {
				t.Errorf("%s and %s: %c is not paired", c.left, c.right, c.left[pair.left])
			}
		}
		if !ok || got != c.want {
			t.Errorf("%s and %s: got %s, want %s", c.left, c.right, got, c.want)
		}
		if len(sorted) != len(c.right) || !slices.IsSortedFunc(sorted, byKey) {
			t.Errorf("%s and %s: sorted is %v", c.left, c.right, sorted)
		}
	}
	if _, _, ok := arrange(keys("aba"), keys("b")); ok {
		t.Error("a list with two items of one key is arranged")
	}
}
