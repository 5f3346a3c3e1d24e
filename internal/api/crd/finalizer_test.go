package crd

import (
	"errors"
	"testing"
)

// TestReplacedBeforeCompiled asks for the stored resource of a definition that was replaced by another
// state before anything was compiled of it, as the deletion of its objects does.
func TestReplacedBeforeCompiled(t *testing.T) {
	d := &definition{name: "widgets.example.com", kinds: &kinds{}}
	d.kinds.close()
	s := &Server{}
	if r, err := s.storedResource(d); r != nil || !errors.Is(err, errReplaced) {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := s.deleteAndAwait(t.Context(), d); !errors.Is(err, errReplaced) {
		t.Error(err)
	}
}
