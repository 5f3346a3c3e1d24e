package kubectlhistory

import (
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

// TestEdits checks with random texts that both can be put together from the difference, and that a slow algorithm finds none that
// is shorter.
func TestEdits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func() (out []string) {
		for range r.IntN(12) {
			out = append(out, string(rune('a'+r.IntN(4))))
		}
		return out
	}
	for range 2000 {
		a, b := text(), text()
		var from, to []string
		changed := 0
		for _, e := range edits(a, b) {
			if e.op != '+' {
				from = append(from, e.line)
			}
			if e.op != '-' {
				to = append(to, e.line)
			}
			if e.op != ' ' {
				changed++
			}
		}
		if !slices.Equal(from, a) || !slices.Equal(to, b) {
			t.Fatalf("%q and %q: the difference has %q and %q", a, b, from, to)
		}
		if want := len(a) + len(b) - 2*common(a, b); changed != want {
			t.Fatalf("%q and %q: %d changes, want %d", a, b, changed, want)
		}
	}
	long := make([]string, 3000)
	for i := range long {
		long[i] = strings.Repeat("x", i%50) + string(rune(i))
	}
	other := slices.Clone(long)
	slices.Reverse(other)
	if got := edits(long, other); len(got) < len(long) {
		t.Errorf("%d lines", len(got))
	}
}

// common returns the length of the longest common subsequence.
func common(a, b []string) int {
	switch {
	case len(a) == 0 || len(b) == 0:
		return 0
	case a[0] == b[0]:
		return 1 + common(a[1:], b[1:])
	}
	return max(common(a[1:], b), common(a, b[1:]))
}
