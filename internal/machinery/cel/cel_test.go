package cel

import (
	"maps"
	"slices"
	"testing"
)

// TestNewExpressionsMayUseWhatStoredOnesMay compares the functions of the two environments. A new expression may
// use all functions except those that the served minor has added, because a server of the minor before it, to
// which an administrator may roll back, does not know them.
func TestNewExpressionsMayUseWhatStoredOnesMay(t *testing.T) {
	newest := []string{"includes"} // of 1.37
	fresh, stored := environments().NewExpressionsEnv(), environments().StoredExpressionsEnv()
	a := append(slices.Collect(maps.Keys(fresh.Functions())), newest...)
	b := slices.Collect(maps.Keys(stored.Functions()))
	slices.Sort(a)
	slices.Sort(b)
	if !slices.Equal(a, b) {
		t.Errorf("new expressions may use\n%q\nstored ones\n%q", a, b)
	}
}
