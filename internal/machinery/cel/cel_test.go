package cel

import (
	"maps"
	"slices"
	"testing"
)

// TestNewExpressionsMayUseWhatStoredOnesMay: today nothing is newer than what a
// rollback allows for. When that changes, the contract has to be recorded again.
func TestNewExpressionsMayUseWhatStoredOnesMay(t *testing.T) {
	names := func(functions ...string) []string { slices.Sort(functions); return functions }
	fresh, stored := environments().NewExpressionsEnv(), environments().StoredExpressionsEnv()
	a := names(slices.Collect(maps.Keys(fresh.Functions()))...)
	b := names(slices.Collect(maps.Keys(stored.Functions()))...)
	if !slices.Equal(a, b) {
		t.Errorf("new expressions may use\n%q\nstored ones\n%q", a, b)
	}
}
