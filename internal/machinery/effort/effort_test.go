package effort

import (
	"testing"
)

func TestRounds(t *testing.T) {
	t.Setenv("KEELSON_SLOW", "")
	if n := Rounds(10, 2); n != 2 || Full() {
		t.Errorf("%d rounds in a quick run", n)
	}
	t.Setenv("KEELSON_SLOW", "1")
	if n, want := Rounds(10, 2), map[bool]int{true: 2, false: 10}[testing.Short()]; n != want {
		t.Errorf("%d rounds in a full run, want %d", n, want)
	}
}
