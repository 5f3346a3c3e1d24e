package declare

import "testing"

func TestDiff(t *testing.T) {
	type form = map[string]int
	want := "@@ -1,4 +1,4 @@\n {\n- \"a\": 1,\n+ \"a\": 2,\n  \"b\": 1\n }\n"
	if got := Diff(form{"a": 1, "b": 1}, form{"a": 2, "b": 1}); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	if got := Diff(form{"a": 1}, form{"a": 1}); got != "" {
		t.Errorf("equal values differ: %s", got)
	}
}
