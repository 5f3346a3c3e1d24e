package core

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestPlainImages holds the tags of plain images against the grammar.
func TestPlainImages(t *testing.T) {
	pieces := []string{
		"a", "nginx", "library", "gcr.io", "localhost", "localhost:5000", "v1.2", "latest", "A", "_", "__", "-", ".", "/", ":",
		"@", "[::1]", "sha256", strings.Repeat("0a", 32), strings.Repeat("b", 100), "é", " ", "\n",
	}
	r := rand.New(rand.NewPCG(1, 2))
	plain := 0
	for range 300_000 {
		image := ""
		for range r.IntN(8) {
			image += pieces[r.IntN(len(pieces))]
		}
		tag, ok := plainImageTag(image)
		if !ok {
			continue
		}
		plain++
		if want := parsedImageTag(image); tag != want {
			t.Fatalf("%q: tag %q, want %q", image, tag, want)
		}
	}
	for _, image := range []string{"nginx:1.2", "registry.example.com/team/app:v1.2.0", "gcr.io/a/b-c:latest"} {
		if _, ok := plainImageTag(image); !ok {
			t.Errorf("%s is not plain", image)
		}
	}
	if plain < 5000 {
		t.Errorf("only %d plain images", plain)
	}
}
