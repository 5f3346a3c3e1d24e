package cel

import "testing"

// TestBoundsApplyToFunctions checks that every bound belongs to an existing function.
func TestBoundsApplyToFunctions(t *testing.T) {
	p, err := newPlanner()
	if err != nil {
		t.Fatal(err)
	}
	for name := range bounds {
		if p.functions[name] == nil {
			t.Errorf("there is no function %s", name)
		}
	}
}
