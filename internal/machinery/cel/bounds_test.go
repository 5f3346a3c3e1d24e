package cel

import (
	"strings"
	"testing"
)

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

// TestBoundsHoldInPrograms evaluates whole expressions: it checks that cel-go calls the boundedCall that has
// replaced a call.
func TestBoundsHoldInPrograms(t *testing.T) {
	for source, want := range map[string]string{
		"size('%.1000000000f'.format([1.0])) > 0": "format: the precision is larger than 100",
		"size('aa'.replace('a', '" + strings.Repeat("b", 1100) + "').replace('b', '" + strings.Repeat("c", 9000) + "')) > 0": "replace: the result",
	} {
		e, err := NewScope().Compile(source, New)
		if err != nil {
			t.Fatal(err)
		}
		p, err := e.Program()
		if err != nil {
			t.Fatal(err)
		}
		budget := Budget(10_000_000)
		if v, err := p.Evaluate(t.Context(), Values{}, &budget); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v %v", source, v, err)
		}
	}
}
