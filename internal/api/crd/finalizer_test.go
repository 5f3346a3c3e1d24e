package crd

import (
	"errors"
	"testing"
)

// TestReplacedBeforeCompiled asks for the stored resource of a state of a definition that was replaced before it
// was compiled. The deletion of the definition's objects may do that.
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
