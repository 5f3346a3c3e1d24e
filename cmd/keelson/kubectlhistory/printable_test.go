package kubectlhistory

import (
	"errors"
	"testing"
)

// TestPrintable checks that nothing of a server controls the terminal, or changes how a line is read.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                  "plain",
		"a\x1b[2Jb":              "a?[2Jb",
		"a\u009b2Jb":             "a?2Jb",
		"a\x9bb":                 "a\ufffdb",
		"user\u202egpj.exe":      "user?gpj.exe",
		"a\u2066b\u2069c\u200fd": "a?b?c?d",
		"a\u2028b\u2029c\ufeffd": "a?b?c?d",
		"zero\u200bwidth":        "zero?width",
		"\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645": "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
		"a\r\nb": "a??b",
	} {
		if got := printable(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	cause := errors.New("two\nlines \x1b]0;title\a \u202e")
	if err := shown(cause); err.Error() != "two\nlines ?]0;title? ?" || !errors.Is(err, cause) || shown(nil) != nil {
		t.Errorf("%q", err)
	}
}
