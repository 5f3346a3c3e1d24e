package rest

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// TestHiddenVerbs compares the declared hidden subresources with those that are served.
func TestHiddenVerbs(t *testing.T) {
	for _, s := range request.HiddenSubresources() {
		if hiddenVerbs[s.Name] == nil {
			t.Errorf("nothing serves the hidden subresource %s", s.Name)
		}
	}
	if got, want := len(hiddenVerbs), len(request.HiddenSubresources()); got != want {
		t.Errorf("%d hidden subresources are served, %d are declared", got, want)
	}
}
