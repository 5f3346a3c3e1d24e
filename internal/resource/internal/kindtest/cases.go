package kindtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// Cases runs the files testdata/cases/RESOURCE.VERSION.txt, or RESOURCE.VERSION.GROUP.txt for a version of another group
// than that of the kind. They show for what reasons kube-apiserver refuses changes
// of a valid object, which is in the first line. A case begins with a line that has one of the words create, update and
// status, and then changes of the valid object: NAME.NAME[0]=JSON sets a field, and -NAME.NAME[0] removes one; a space
// stands between changes, and none within the JSON. "update" is an update of the valid object to the changed one,
// "status" the same of its status. The lines below, which are indented, are the causes in any order, as kube-apiserver
// words them, with \n for a new line. Causes about metadata are left out, because the rules of all objects find them.
func Cases(t *testing.T, kinds []*registry.Kind) { CasesIn(t, kinds, "testdata/cases") }

// CasesIn is Cases for the files of another directory: those of kinds with other feature gates, for instance.
func CasesIn(t *testing.T, kinds []*registry.Kind, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { runCases(t, kinds, file) })
	}
}

func runCases(t *testing.T, kinds []*registry.Kind, file string) {
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	resource, rest, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".txt"), ".")
	version, group, _ := strings.Cut(rest, ".")
	valid, rest, _ := strings.Cut(string(content), "\n")
	c := cases{kind: find(t, kinds, resource), valid: []byte(valid)}
	c.version = slices.IndexFunc(c.kind.Versions, func(v registry.Version) bool {
		return v.Name == version && v.Group == group
	})
	if c.version < 0 {
		t.Fatalf("%s has no such version", resource)
	}
	lines := strings.Split(strings.TrimSpace(rest), "\n")
	for len(lines) > 0 {
		n := 1
		for n < len(lines) && strings.HasPrefix(lines[n], " ") {
			n++
		}
		var want []string
		for _, line := range lines[1:n] {
			want = append(want, strings.TrimSpace(line))
		}
		slices.Sort(want)
		if got := c.causes(t, lines[0]); !slices.Equal(got, want) {
			t.Errorf("%s\nrefused for\n  %s\nwant\n  %s", lines[0], strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
		lines = lines[n:]
	}
}

// cases are the cases of one file.
type cases struct {
	kind    *registry.Kind
	version int // index of kind.Versions
	valid   []byte
}

// causes returns the causes for which the request in a line is refused, sorted.
func (c *cases) causes(t *testing.T, line string) []string {
	verb, changes, _ := strings.Cut(line, " ")
	obj, old := c.object(t, c.changed(t, changes)), c.object(t, c.valid)
	ctx := fill(c.kind, old, admin())
	gv := c.kind.GroupVersion(&c.kind.Versions[c.version])
	ctx = request.WithInfo(ctx, &request.Info{Group: gv.Group, Version: gv.Version})
	var errs field.ErrorList
	switch s := &c.kind.Strategy; verb {
	case "create":
		if fill(c.kind, obj, admin()); s.ValidateCreate != nil {
			errs = s.ValidateCreate(ctx, obj, nil)
		}
	case "update":
		if update(c.kind, obj, old); s.ValidateUpdate != nil {
			errs = s.ValidateUpdate(ctx, obj, old)
		}
	case "status":
		next := updateStatus(c.kind, obj, old)
		if s.ValidateStatusUpdate != nil {
			errs = s.ValidateStatusUpdate(ctx, next, old)
		}
	default:
		t.Fatalf("no such verb: %s", line)
	}
	var list []string
	for _, err := range errs {
		if !strings.HasPrefix(err.Field, "metadata.") {
			cause := strings.TrimSpace(err.Field + ": " + err.ErrorBody())
			list = append(list, strings.ReplaceAll(cause, "\n", `\n`))
		}
	}
	slices.Sort(list)
	return list
}

// changed returns the valid object after the changes in a line, as JSON.
func (c *cases) changed(t *testing.T, changes string) []byte {
	var tree any
	if err := json.Unmarshal(c.valid, &tree); err != nil {
		t.Fatal(err)
	}
	for _, change := range strings.Fields(changes) {
		path, value, set := strings.Cut(change, "=")
		var v any
		if set {
			if err := json.Unmarshal([]byte(value), &v); err != nil {
				t.Fatalf("%s: %v", change, err)
			}
		}
		tree = changed(tree, pathOf(strings.TrimPrefix(path, "-")), v, set)
	}
	body, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// object decodes a document. It is in the namespace "cases".
func (c *cases) object(t *testing.T, body []byte) registry.Object {
	obj, err := decodeIn(&c.kind.Versions[c.version], body)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if c.kind.Namespaced {
		obj.SetNamespace("cases")
	}
	return obj
}

// pathOf returns the names and indices in a path. What is between brackets and no number is the key of a map.
func pathOf(path string) []string {
	var parts []string
	for _, part := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' }) {
		parts = append(parts, strings.TrimSuffix(part, "]"))
	}
	return parts
}

// changed returns a tree after a change of the value at a path.
// An index that is the length of a list adds an element. Missing objects on the way are made, so that one change
// can set a field of a field that is not there.
func changed(tree any, path []string, value any, set bool) any {
	if len(path) == 0 {
		return value
	}
	if list, ok := tree.([]any); ok {
		i, err := strconv.Atoi(path[0])
		switch {
		case err != nil || i > len(list):
			panic("no item " + path[0])
		case i == len(list):
			return append(list, changed(nil, path[1:], value, set))
		case len(path) == 1 && !set:
			return slices.Delete(list, i, i+1)
		}
		list[i] = changed(list[i], path[1:], value, set)
		return list
	}
	object, _ := tree.(map[string]any)
	if object == nil {
		object = map[string]any{}
	}
	if len(path) == 1 && !set {
		delete(object, path[0])
		return object
	}
	object[path[0]] = changed(object[path[0]], path[1:], value, set)
	return object
}
