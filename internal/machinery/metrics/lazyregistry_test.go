package metrics

import "testing"

// TestLazyRegistry checks that collectors are registered at the first Gather, and collectors that are added later
// at the next one. Then a second collector of the same metric causes a panic.
func TestLazyRegistry(t *testing.T) {
	var r lazyRegistry
	for i, name := range []string{"a", "b"} {
		r.Counter(name, "")
		if families, err := r.Gather(); err != nil || len(families) != i+1 || families[i].GetName() != name {
			t.Fatalf("after %s: %v, %v", name, families, err)
		}
	}
	r.Counter("a", "")
	defer func() {
		if recover() == nil {
			t.Error("two collectors of one metric are accepted")
		}
	}()
	_, _ = r.Gather()
}
