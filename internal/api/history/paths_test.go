package history

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestVectors runs test cases that the web console also runs, with its own implementation of paths.
func TestVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/paths.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name   string
		Object map[string]any
		Paths  []string
	}
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) == 0 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	for _, v := range vectors {
		got := leaves(v.Object)
		slices.Sort(got)
		slices.Sort(v.Paths)
		if !slices.Equal(got, v.Paths) {
			t.Errorf("%s: %q, want %q", v.Name, got, v.Paths)
		}
	}
}

func TestPaths(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{`{}`, `{}`, ""},
		{`{"spec":{"replicas":1}}`, `{"spec":{"replicas":2}}`, ".spec.replicas"},
		{`{"spec":{"replicas":1}}`, `{"spec":{}}`, ".spec.replicas"},
		{`{"spec":{}}`, `{"spec":{"a":{"b":1}}}`, ".spec.a"},
		{`{"a":{"b":1}}`, `{"a":[1]}`, ".a"},
		{`{"metadata":{"labels":{"app.kubernetes.io/name":"a"}}}`, `{"metadata":{"labels":{"app.kubernetes.io/name":"b"}}}`,
			".metadata.labels[app.kubernetes.io/name]"},
		{`{"metadata":{"resourceVersion":"1","generation":1,"managedFields":[]}}`, `{"metadata":{"resourceVersion":"2","generation":2}}`, ""},
		{`{"c":[{"name":"a","v":1},{"name":"b"}]}`, `{"c":[{"name":"b"},{"name":"a","v":2}]}`, ".c[name=a].v"},
		{`{"c":[{"name":"a"},{"name":"b"}]}`, `{"c":[{"name":"b"},{"name":"a"}]}`, ".c"},
		{`{"c":[{"name":"a"}]}`, `{"c":[{"name":"a"},{"name":"b"}]}`, ".c[name=b]"},
		{`{"args":["a","b"]}`, `{"args":["a","c","d"]}`, ".args[1] .args[2]"},
		{`{"c":[{"name":"a"},{"name":"a","v":1}]}`, `{"c":[{"name":"a"},{"name":"a","v":2}]}`, ".c[1].v"},
		{`{"a":null}`, `{"a":1}`, ".a"},
		{`{"spec":{"managedFields":{"x":1}}}`, `{"spec":{"managedFields":{"x":2}}}`, ".spec.managedFields.x"},
		{`{"a\u0062":{"x":1},"y":2}`, `{"a\u0062":{"x":2},"y":2}`, ".ab.x"},
		{`{"spec":{"x":[{"v":1},{"v":2}]}}`, `{"spec":{"x":[{"v":1},{"v":3}]}}`, ".spec.x[1].v"},
		{`{"x":1,"a":1}`, `{"x":2,"a":2}`, ".a .x"},
	} {
		var before, after map[string]any
		for text, to := range map[string]*map[string]any{c.before: &before, c.after: &after} {
			if err := json.Unmarshal([]byte(text), to); err != nil {
				t.Fatal(err)
			}
		}
		if c.before == c.after {
			before, after = map[string]any{}, map[string]any{}
		}
		if got, _ := Paths(before, after); strings.Join(got, " ") != c.want {
			t.Errorf("%s and %s: %q, want %q", c.before, c.after, got, c.want)
		}
		if c.before == c.after {
			continue
		}
		if got, _, err := Changed([]byte(c.before), []byte(c.after)); err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s and %s as JSON: %q (%v), want %q", c.before, c.after, got, err, c.want)
		}
	}
}

// TestDeepObjects compares objects that are as deep as a document may be.
func TestDeepObjects(t *testing.T) {
	deep := func(v string) []byte {
		const levels = 9000
		return []byte(strings.Repeat(`{"a":`, levels) + v + strings.Repeat("}", levels))
	}
	paths, more, err := Changed(deep("1"), deep("2"))
	if err != nil || len(paths) != 1 || more != 0 || len(paths[0]) < maxPath || len(paths[0]) > maxPath+10 {
		t.Errorf("%d paths, %d more, %v", len(paths), more, err)
	}
}

// TestManyPaths changes more fields than are shown.
func TestManyPaths(t *testing.T) {
	after := map[string]any{}
	for i := range 2 * MaxChanged {
		after[fmt.Sprintf("f%04d", i)] = 1
	}
	paths, more := Paths(map[string]any{}, after)
	if len(paths) != MaxChanged || more != MaxChanged || !slices.IsSorted(paths) {
		t.Errorf("%d paths and %d more", len(paths), more)
	}
}

// TestLongPaths checks that names as long as an object may be do not make paths that are longer than the object.
func TestLongPaths(t *testing.T) {
	long := strings.Repeat("\u00e4", 200_000)
	before, after := map[string]any{}, map[string]any{}
	for i := range 20_000 {
		before[fmt.Sprint("f", i)], after[fmt.Sprint("f", i)] = 0, 1
	}
	for range 100 {
		before, after = map[string]any{long: before}, map[string]any{long: after}
	}
	paths, more := Paths(before, after)
	if len(paths) != 1 || more != 0 || len(paths[0]) > maxPath+maxName+10 || !utf8.ValidString(paths[0]) {
		t.Errorf("%d paths and %d more, the first of %d bytes", len(paths), more, len(strings.Join(paths, "")))
	}
	if got := leaves(after); len(got) != 1 || got[0] != paths[0] {
		t.Errorf("%d leaves", len(got))
	}
	item := func(v int) map[string]any { return map[string]any{"c": []any{map[string]any{"name": long, "v": v}}} }
	if paths, _ := Paths(item(1), item(2)); len(paths) != 1 || len(paths[0]) > 2*maxName {
		t.Error("the name of an item")
	}
}

// TestPathsBelowLongOnes checks that many fields below one long path do not make an answer that is much longer
// than the object.
func TestPathsBelowLongOnes(t *testing.T) {
	const fields = 20_000
	before, after := map[string]any{}, map[string]any{}
	for i := range fields {
		before[fmt.Sprint("f", i)], after[fmt.Sprint("f", i)] = 0, 1
	}
	for range 5 {
		long := strings.Repeat("a", 200)
		before, after = map[string]any{long: before}, map[string]any{long: after}
	}
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	paths, more := Paths(before, after)
	runtime.ReadMemStats(&end)
	if took := end.TotalAlloc - start.TotalAlloc; took > 8<<20 {
		t.Errorf("%d MiB were allocated", took>>20)
	}
	if n := len(strings.Join(paths, "")); n > 18<<10 || len(paths)+more != fields || len(paths) == 0 {
		t.Errorf("%d paths of %d bytes and %d more", len(paths), n, more)
	}
}

func TestTimeOf(t *testing.T) {
	if TimeOf(time.Time{}) != nil {
		t.Error("an unknown time is shown")
	}
}

// leaves returns the paths of the leaves of an object.
func leaves(object map[string]any) (paths []string) {
	eachLeaf(object, nil, func(path []byte, _, _ any, _ bool) bool {
		paths = append(paths, string(path))
		return true
	})
	return paths
}

func TestLeaves(t *testing.T) {
	for object, want := range map[string]string{
		`{}`: "",
		`{"metadata":{"resourceVersion":"1","managedFields":[{"a":1}],"labels":{"a/b":"x"}}}`: ".metadata.labels[a/b]=x",
		`{"b":{},"a":[],"c":{"d":1,"e":null}}`:                                                ".a=[] .b=map[] .c.d=1 .c.e=<nil>",
		`{"c":[{"name":"y","v":1},{"name":"x"}],"l":["p","q"],"t":true}`: ".c[name=x].name=x .c[name=y].name=y .c[name=y].v=1 " +
			".l[0]=p .l[1]=q .t=true",
	} {
		var o map[string]any
		if err := json.Unmarshal([]byte(object), &o); err != nil {
			t.Fatal(err)
		}
		var got []string
		eachLeaf(o, nil, func(path []byte, v, _ any, there bool) bool {
			got = append(got, fmt.Sprintf("%s=%v", path, v))
			if there {
				t.Errorf("%s: %s is in another object, which is not there", object, path)
			}
			return true
		})
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %s, want %s", object, got, want)
		}
	}
}
