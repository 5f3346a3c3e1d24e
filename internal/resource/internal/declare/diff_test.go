package declare

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestDiff(t *testing.T) {
	type form = map[string]int
	want := "@@ -1,4 +1,4 @@\n {\n- \"a\": 1,\n+ \"a\": 2,\n  \"b\": 1\n }\n"
	if got := Diff(form{"a": 1, "b": 1}, form{"a": 2, "b": 1}); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	if got := Diff(form{"a": 1}, form{"a": 1}); got != "" {
		t.Errorf("equal values differ: %s", got)
	}
}

// TestDiffAppliesToOneSide: hunks have the lines of both sides that their heads announce, and what they
// take away and put in is all that makes one side of the other.
func TestDiffAppliesToOneSide(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a, b := someLines(random), someLines(random)
		d := differ{a: a, b: b}
		d.index()
		d.match(0, len(a), 0, len(b))
		var minus, plus []string
		for line := range strings.SplitSeq(d.unified(), "\n") {
			switch {
			case strings.HasPrefix(line, "-"):
				minus = append(minus, line[1:])
			case strings.HasPrefix(line, "+"):
				plus = append(plus, line[1:])
			}
		}
		if x, y := count(a, minus), count(b, plus); len(a)-len(minus) != len(b)-len(plus) || x != y {
			t.Fatalf("%q to %q: -%q +%q", a, b, minus, plus)
		}
	}
}

func someLines(r *rand.Rand) []string {
	list := make([]string, r.IntN(14))
	for i := range list {
		list[i] = string(rune('a' + r.IntN(5)))
	}
	return list
}

// count writes how often each line stays.
func count(list, gone []string) string {
	var n [5]int
	for _, s := range list {
		n[s[0]-'a']++
	}
	for _, s := range gone {
		n[s[0]-'a']--
	}
	var out strings.Builder
	for _, k := range n {
		out.WriteRune(rune('0' + k))
	}
	return out.String()
}
