package jsonpatch

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func apply(doc, patch string) (string, error) {
	p, err := Decode([]byte(patch))
	if err != nil {
		return "", err
	}
	out, err := p.Apply([]byte(doc))
	return string(out), err
}

func TestApply(t *testing.T) {
	for _, c := range []struct{ patch, want string }{
		{`[]`, `{"a":1}`},
		{`[{"op":"add","path":"/b","value":2}]`, `{"a":1,"b":2}`},
		{`[{"op":"replace","path":"","value":{"c":3}}]`, `{"c":3}`},
		{`[{"op":"test","path":"/a","value":1},{"op":"remove","path":"/a"}]`, `{}`},
	} {
		if got, err := apply(`{"a":1}`, c.patch); err != nil || got != c.want {
			t.Errorf("%s: %s %v", c.patch, got, err)
		}
	}
	for _, patch := range []string{
		`{}`, `[1]`, `[{"op":"remove","path":"/b"}]`, `[{"op":"x","path":"/a"}]`,
		`[{"op":"replace","path":""}]`, `[{"op":"test","path":""}]`, // the library panics without a value
	} {
		if got, err := apply(`{"a":1}`, patch); err == nil {
			t.Errorf("%s: %s", patch, got)
		}
	}
}

// TestCopiesAreLimited checks that a patch which doubles a part of the document again and again is refused.
func TestCopiesAreLimited(t *testing.T) {
	var operations []string
	for range 30 {
		operations = append(operations, `{"op":"copy","from":"/a","path":"/a/-"}`)
	}
	out, err := apply(`{"a":["`+strings.Repeat("x", 1000)+`"]}`, "["+strings.Join(operations, ",")+"]")
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(MaxCopyBytes)) {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

func TestDeepPathsAreRefused(t *testing.T) {
	doc := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
	var deep *DepthError
	if _, err := apply(doc, `[{"op":"add","path":"`+strings.Repeat("/a", 100)+`","value":1}]`); !errors.As(err, &deep) {
		t.Error(err)
	}
}

// TestNew checks that a patch of operations tells the value null from no value.
func TestNew(t *testing.T) {
	for _, c := range []struct {
		operation  Operation
		want       string
		testFailed bool
	}{
		{Operation{Op: "add", Path: "/b\"\n", Value: []byte("null")}, `{"a":1,"b\"\n":null}`, false},
		{Operation{Op: "move", From: "/a", Path: "/b"}, `{"b":1}`, false},
		{Operation{Op: "test", Path: "/a", Value: []byte("1")}, `{"a":1}`, false},
		{Operation{Op: "test", Path: "/b"}, `{"a":1}`, false},
		{Operation{Op: "test", Path: "/b", Value: []byte("null")}, "", true},
		{Operation{Op: "test", Path: "", Value: []byte("null")}, "", true},
		{Operation{Op: "test"}, "", true}, // the library panics without a value
	} {
		p, err := New([]Operation{c.operation})
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Apply([]byte(`{"a":1}`))
		if string(got) != c.want || IsTestFailed(err) != c.testFailed {
			t.Errorf("%+v: %s %v", c.operation, got, err)
		}
	}
}
