package keptkeys

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestReloadsThatWait checks that a reload which nobody has looked at yet is not forgotten when another one comes.
func TestReloadsThatWait(t *testing.T) {
	c := New()
	for _, prefix := range []string{"k8s:enc:aesgcm:v1:b:", "", "k8s:enc:aesgcm:v1:a:"} {
		c.Reloaded(func(schema.GroupResource) []string { return []string{prefix} })
	}
	prefixes := (<-c.waiting)(schema.GroupResource{Resource: "secrets"})
	if len(prefixes) != 3 {
		t.Errorf("prefixes %q", prefixes)
	}
	if got, want := keyNames(append(prefixes, prefixes...)), "aesgcm:v1:a, aesgcm:v1:b, none"; got != want {
		t.Errorf("keys %q, want %q", got, want)
	}
	if slices.Contains(prefixes, "none") {
		t.Error("the prefixes were changed")
	}
}
