package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// trees decodes two JSON texts.
func trees(t *testing.T, want, got string) (a, b map[string]any) {
	t.Helper()
	if err := errors.Join(decode([]byte(want), &a), decode([]byte(got), &b)); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestCompareTrees(t *testing.T) {
	for _, c := range []struct{ want, got, lines string }{
		{`{"a":1}`, `{"a":1}`, ""},
		{`{"a":1}`, `{"a":1.0}`, `a: kube-apiserver 1, Keelson 1.0`},
		{`{"a":{"b":1}}`, `{"a":{}}`, `a/b: only kube-apiserver: 1`},
		{`{}`, `{"a/b~":{"c":1}}`, `a~1b~0: only Keelson: {"c":1}`},
		{`{"a":{"b":1}}`, `{"a":[]}`, `a: kube-apiserver {"b":1}, Keelson []`},
		{`{"a":["x","y"]}`, `{"a":["y","z"]}`, "a: only kube-apiserver has \"x\"\na: only Keelson has \"z\""},
		{`{"a":["x","y"]}`, `{"a":["y","x"]}`, `a: kube-apiserver ["x","y"], Keelson ["y","x"]`},
		{`{"a":[{"name":"x","v":1},{"name":"y"}]}`, `{"a":[{"name":"y"},{"name":"x","v":2}]}`, `a/x/v: kube-apiserver 1, Keelson 2`},
		{
			`{"a":[{"name":"x","in":"path"},{"name":"x","in":"query"}]}`, `{"a":[{"name":"x","in":"path"}]}`,
			`a/x in query: only kube-apiserver: {"in":"query","name":"x"}`,
		},
		{
			`{"a":[{"group":"","version":"v1","kind":"A"}]}`, `{"a":[{"group":"","version":"v1","kind":"B"}]}`,
			"a/ v1 A: only kube-apiserver: {\"group\":\"\",\"kind\":\"A\",\"version\":\"v1\"}\n" +
				"a/ v1 B: only Keelson: {\"group\":\"\",\"kind\":\"B\",\"version\":\"v1\"}",
		},
		// An element in front does not make the others different.
		{`{"a":[{"x":0},{"x":1},{"x":2}]}`, `{"a":[{"x":1},{"x":2}]}`, `a/0: only kube-apiserver: {"x":0}`},
		{`{"a":[{"x":1},{"x":2}]}`, `{"a":[{"x":1},{"x":3}]}`, `a/1/x: kube-apiserver 2, Keelson 3`},
		{`{"a":[{"x":1},{"x":1}]}`, `{"a":[{"x":1}]}`, `a: kube-apiserver has 2 elements, Keelson 1`},
	} {
		var lines []string
		for _, d := range compareTrees(trees(t, c.want, c.got)) {
			lines = append(lines, d.String())
		}
		if got := strings.Join(lines, "\n"); got != c.lines {
			t.Errorf("%s and %s:\n%s\nwant\n%s", c.want, c.got, got, c.lines)
		}
	}
}

// TestOrder compares only the order of what both have.
func TestOrder(t *testing.T) {
	want := map[string]any{"o": order{"a", "b", "c", "d"}}
	if ds := compareTrees(want, map[string]any{"o": order{"a", "x", "c", "d"}}); len(ds) != 0 {
		t.Errorf("%v", ds)
	}
	if ds := compareTrees(want, map[string]any{"o": order{"a", "c", "b"}}); len(ds) != 1 ||
		ds[0].String() != "o: kube-apiserver has b here, Keelson c" {
		t.Errorf("%v", ds)
	}
}

func TestLongTextsAreShortened(t *testing.T) {
	long := strings.Repeat("x", 1000)
	ds := compareTrees(map[string]any{"a": long + "1"}, map[string]any{"a": long + "2"})
	if len(ds) != 1 || len(ds[0].text) > 200 || !strings.Contains(ds[0].text, `1"`) || !strings.Contains(ds[0].text, `2"`) {
		t.Errorf("%v", ds)
	}
}

func TestKnown(t *testing.T) {
	known, err := readKnown(strings.NewReader("# a reason\nflags a/*: only Keelson*\n?flags b\n\n# another\nflags c\n"))
	if err != nil || len(known) != 3 {
		t.Fatalf("%v %v", known, err)
	}
	for _, c := range []struct {
		section, path, text string
		want                bool
	}{
		{"flags", "a/b", "only Keelson: 1", true},
		{"flags", "a/b", "only kube-apiserver: 1", false},
		{"gates", "a/b", "only Keelson: 1", false},
		{"flags", "b", "anything", true},
		{"flags", "bb", "anything", false},
	} {
		if got := expected(known, c.section, difference{c.path, c.text}); got != c.want {
			t.Errorf("%s %s %s: %v", c.section, c.path, c.text, got)
		}
	}
	if !known[0].found || !known[1].found || known[2].found || !known[1].sometimes || known[2].line != 6 {
		t.Errorf("%+v %+v %+v", known[0], known[1], known[2])
	}
	for _, wrong := range []string{"flags a", "# reason\n\nflags a", "# reason\nflags"} {
		if _, err := readKnown(strings.NewReader(wrong)); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

// TestCommittedKnown reads known.txt: its sections exist.
func TestCommittedKnown(t *testing.T) {
	known, err := readKnown(strings.NewReader(knownDifferences))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range sections() {
		names[s.name] = true
	}
	for _, k := range known {
		if !names[k.section] {
			t.Errorf("line %d: there is no section %q", k.line, k.section)
		}
	}
}

func TestFlagsOfTheCommand(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--reference", "x"}, {"--reference-url", "x", "--only", "nothing"}, {"--reference-url", "x", "more"},
		{"--reference-url", "x", "--reference", "y", "--etcd", "z"}, {"--reference-url", "x", "--keelson", "y", "--keelson-url", "z"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v are accepted", args)
		}
	}
	if _, err := parse([]string{"--reference-url", "x", "--only", "flags,gates"}); err != nil {
		t.Error(err)
	}
}

// TestReport compares the two servers of fake_test.go, which differ in one thing for each section, and then a server
// with itself.
func TestReport(t *testing.T) {
	known := "# on purpose\nwarnings *\n# gone\nroles nothing\n"
	expectations := func() []*expectation {
		k, err := readKnown(strings.NewReader(known))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	var out bytes.Buffer
	found, err := report(t.Context(), newFakes(t), smallSections(), expectations(), false, true, &out)
	if err != nil || !found {
		t.Fatalf("%v %v", found, err)
	}
	for _, line := range strings.Split(strings.TrimSpace(differing), "\n") {
		if !strings.Contains(out.String(), line+"\n") {
			t.Errorf("there is no line %q", line)
		}
	}
	if n, m := strings.Count(out.String(), "\n"), strings.Count(differing, "\n"); n != m-1 {
		t.Errorf("%d lines, want %d:\n%s", n, m-1, out.String())
	}

	out.Reset()
	same := newFakes(t)
	same.keelson = same.reference
	found, err = report(t.Context(), same, smallSections(), nil, false, true, &out)
	if err != nil || found {
		t.Errorf("%v %v\n%s", found, err, out.String())
	}
	for line := range strings.Lines(out.String()) {
		if !strings.HasSuffix(line, ": no difference\n") {
			t.Errorf("%q", line)
		}
	}
}

// TestSaveOpenAPI writes the documents of a server byte by byte.
func TestSaveOpenAPI(t *testing.T) {
	dir := t.TempDir()
	c := newFakes(t)
	args := []string{"--reference-url", c.reference.url, "--reference-token", "secret", "--openapi", dir}
	if found, err := run(t.Context(), args, &bytes.Buffer{}); err != nil || found {
		t.Fatal(found, err)
	}
	documents := fake{true}.documents()
	for file, path := range map[string]string{
		"v2.json.gz": "/openapi/v2", "v3/apis__example.com__v1beta1.json.gz": "/openapi/v3/apis/example.com/v1beta1",
	} {
		f, err := os.Open(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(z); err != nil || string(got) != documents[path] {
			t.Errorf("%s: %s %v", file, got, err)
		}
	}
}

// TestGatesOfAnEarlierMinor leaves out the gates that only --help has: it always shows the newest minor.
func TestGatesOfAnEarlierMinor(t *testing.T) {
	c := newFakes(t)
	c.emulated = "1.36"
	gates, err := collectGates(t.Context(), c, c.reference)
	if err != nil || gates["HelpOnly"] != nil || dig(gates, "Locked", "locked") != false {
		t.Errorf("%v %v", gates, err)
	}
}
