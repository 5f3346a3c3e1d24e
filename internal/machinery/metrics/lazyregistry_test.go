package metrics

import "testing"

// TestLazyRegistry: collectors are registered when metrics are gathered, those that are added later the next time. A
// second collector of a metric causes a panic then.
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
