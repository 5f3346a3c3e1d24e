package kubectlhistory

import (
	"strings"
	"testing"
)

func TestValueText(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{{"a b", "a b"}, {"", `""`}, {int64(1), "1"}, {[]any{}, "[]"}, {nil, "null"}, {strings.Repeat("x", 70), strings.Repeat("x", 60) + "..."}} {
		if got := valueText(c.value); got != c.want {
			t.Errorf("%v: %s", c.value, got)
		}
	}
}
