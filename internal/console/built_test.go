package console

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBuiltFromSources checks that the files in dist were built from the present sources of the page (see
// packaging/tools/console).
func TestBuiltFromSources(t *testing.T) {
	want, err := os.ReadFile("dist/sources.sum")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	err = filepath.WalkDir("app", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "node_modules":
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		text, err := os.ReadFile(path)
		lines = append(lines, fmt.Sprintf("%x %s", sha256.Sum256(text), strings.TrimPrefix(filepath.ToSlash(path), "app/")))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[65:], b[65:]) })
	if got := fmt.Sprintf("%x\n", sha256.Sum256([]byte(strings.Join(lines, "\n")))); got != string(want) {
		t.Error("the page was not built from these sources: run `go generate ./internal/console`")
	}
}
