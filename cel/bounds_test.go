package cel

import "testing"

// TestBoundsAreOfFunctions holds the bounds against the functions that there are.
func TestBoundsAreOfFunctions(t *testing.T) {
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
