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

// TestValues takes over times, revisions and UIDs.
func TestValues(t *testing.T) {
	const document = "2026-01-02T03:04:05.006Z   17   a\nuid: 00000000-0000-0000-0000-000000000001 17 100\n  resourceVersion: \"18\"\n"
	const output = "2027-01-02T03:04:05.9Z  4  a\nuid: 00000000-0000-0000-0000-00000000000a 4 100\n  resourceVersion: \"5\"\n"
	v := Values{}
	step := Step{"get 2026-01-02T03:04:05.006Z at 18 and x17", document}
	if v.In(step) != step {
		t.Error("something is known in the beginning")
	}
	v.Learn(document, "fewer")
	v.Learn(document, output)
	if got := v.In(step); got.Script != "get 2027-01-02T03:04:05.9Z at 5 and x17" || got.Differs(output) != "" {
		t.Errorf("%q: %s", got.Script, got.Differs(output))
	}
	v.Learn(document, strings.Replace(output, "2027", "2028", 1)) // what is known stays
	if d := v.In(step).Differs(strings.Replace(output, "2027", "2028", 1)); d == "" {
		t.Error("another time is the same")
	}
}
