package transcript

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTranscript(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.md")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "~~~", "```")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# A\n\n## One\n\n~~~sh\necho $A 5s\nfalse\n~~~\n\n~~~text\nb 7m\n~~~\n\n~~~sh\necho b\necho c\n~~~\n\n" +
		"~~~text\nb\nc\n~~~\n\n## Two\n\n~~~sh\nx\n~~~\n\nNothing.\n")
	steps, err := Read(file, "One")
	if err != nil || len(steps) != 2 {
		t.Fatal(steps, err)
	}
	for _, s := range steps {
		if d := s.Differs(s.Run(t.Context(), "A=b")); d != "" {
			t.Error(d)
		}
	}
	if d := steps[0].Differs(steps[0].Run(t.Context(), "A=c")); !strings.Contains(d, "c 0s\nnot\nb 0s") {
		t.Errorf("the difference is %q", d)
	}
	for _, section := range []string{"Two", "Three"} {
		if _, err := Read(file, section); err == nil {
			t.Errorf("section %s is read", section)
		}
	}
}
