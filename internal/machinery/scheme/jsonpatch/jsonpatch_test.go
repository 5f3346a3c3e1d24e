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

// TestMovesAreBounded: an item that is inserted or removed moves the others. 10,000 items at the head of a list of 600,000
// took more than a minute.
func TestMovesAreBounded(t *testing.T) {
	list := func(n int) string { return "[" + strings.Repeat("0,", n-1) + "0]" }
	many := func(n int, op string) string { return "[" + strings.Repeat(op+",", n-1) + op + "]" }
	const add, remove = `{"op":"add","path":"/x/0","value":1}`, `{"op":"remove","path":"/x/0"}`
	long := `{"s":"[[[,,,","x":` + list(600_000) + `,"y":{"0":1}}`
	for name, c := range map[string]struct {
		doc, patch string
		refused    bool
	}{
		"add":               {long, many(10_000, add), true},
		"negative":          {long, many(10_000, `{"op":"add","path":"/x/-1","value":1}`), true},
		"remove":            {long, many(10_000, remove), true},
		"move":              {long, many(5_000, `{"op":"move","from":"/x/0","path":"/x/1"}`), true},
		"copy":              {long, many(10_000, `{"op":"copy","from":"/s","path":"/x/1"}`), true},
		"a list of a patch": {`{}`, `[{"op":"add","path":"/x","value":` + list(600_000) + `},` + many(10_000, add)[1:], true},
		"a list that grows": {`{"x":[]}`, many(20_000, add), true},
		"few":               {long, many(100, add), false},
		"at the end":        {long, many(10_000, `{"op":"add","path":"/x/-","value":1}`), false},
		"replace":           {long, many(10_000, `{"op":"replace","path":"/x/0","value":1}`), false},
		"a short list":      {`{"x":` + list(10_000) + `,"s":"` + strings.Repeat("[,", 500_000) + `"}`, many(10_000, remove), false},
		"names":             {`{"x":{"0":1},"s":"` + strings.Repeat("x", 2_000_000) + `"}`, many(10_000, add), false},
	} {
		_, err := apply(c.doc, c.patch)
		var refused *MovesError
		if errors.As(err, &refused) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
