package cel

import (
	"maps"
	"slices"
	"testing"
)

// TestNewExpressionsMayUseWhatStoredOnesMay compares the functions: a new expression may use all but those that came with the
// served minor, because the server of the minor before has to understand it after a rollback.
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
