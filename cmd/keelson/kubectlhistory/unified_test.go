package kubectlhistory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestUnified(t *testing.T) {
	ten := "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"
	for name, c := range map[string]struct{ from, to, want string }{
		"equal":   {ten, ten, ""},
		"nothing": {"", "", ""},
		"new":     {"", "a\n", "--- then\n+++ now\n@@ -0,0 +1 @@\n+a\n"},
		"gone":    {"a\nb\n", "", "--- then\n+++ now\n@@ -1,2 +0,0 @@\n-a\n-b\n"},
		"one line": {ten, strings.Replace(ten, "5", "five", 1),
			"--- then\n+++ now\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"},
		"two hunks": {ten, "one\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n",
			"--- then\n+++ now\n@@ -1,4 +1,4 @@\n-1\n+one\n 2\n 3\n 4\n@@ -8,3 +8,4 @@\n 8\n 9\n 10\n+11\n"},
		"control characters": {"a\n", "a\x1b[2J\n", "--- then\n+++ now\n@@ -1 +1 @@\n-a\n+a?[2J\n"},
	} {
		if got := unified("then", "now", c.from, c.to, false); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
	if got := unified("then", "now", "a\n", "b\n", true); !strings.Contains(got, "\x1b[31m-a\x1b[0m\n\x1b[32m+b\x1b[0m\n") {
		t.Errorf("in colours: %q", got)
	}
}

// TestUnifiedOfRandomTexts applies diffs of random texts to the first text, and checks that the result is the
// second one.
func TestUnifiedOfRandomTexts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var out strings.Builder
		for range r.IntN(40) {
			out.WriteString(string(rune('a'+r.IntN(4))) + "\n")
		}
		return out.String()
	}
	for range 2000 {
		from, to := text(), text()
		if got := patched(t, lines(from), unified("then", "now", from, to, false)); !slices.Equal(got, lines(to)) {
			t.Fatalf("%q and %q: the difference leads to %q", from, to, got)
		}
	}
}

// patched applies a unified difference to lines.
func patched(t *testing.T, from []string, difference string) (out []string) {
	t.Helper()
	at := 0 // lines of from that were read
	for _, line := range lines(difference)[min(2, len(lines(difference))):] {
		mark, text := line[0], line[1:]
		if mark == '@' {
			var first, count int
			if n, _ := fmt.Sscanf(line, "@@ -%d,%d", &first, &count); n == 1 || count > 0 {
				first-- // an empty range has the number of the line before it
			}
			out, at = append(out, from[at:first]...), first
			continue
		}
		if mark != '+' {
			if from[at] != text {
				t.Fatalf("line %d is %q, and %q in the difference", at, from[at], text)
			}
			at++
		}
		if mark != '-' {
			out = append(out, text)
		}
	}
	return append(out, from[at:]...)
}
