package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/api.txt and docs/floors.svg")

// TestPublicAPI compares what the public packages export with testdata/api.txt, and checks that it mentions no type of a
// package below internal: programs of others could not name it. A changed line is a change that such programs may notice.
func TestPublicAPI(t *testing.T) {
	const listing = "testdata/api.txt"
	var got []string
	for _, p := range publicPackages(t) {
		lines, hidden := exported(p)
		got = append(got, lines...)
		for _, line := range hidden {
			t.Errorf("it mentions an internal package: %s", line)
		}
	}
	text := []byte(strings.Join(got, "\n") + "\n")
	if *update {
		if err := os.WriteFile(listing, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.ReadFile(listing)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(old, text) {
		return
	}
	before := strings.Split(strings.TrimSpace(string(old)), "\n")
	for _, line := range before {
		if !slices.Contains(got, line) {
			t.Errorf("gone: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(before, line) {
			t.Errorf("new: %s", line)
		}
	}
	t.Error("the public API has changed: go test ./internal/lint -run TestPublicAPI -update writes " + listing)
}

// TestListingFindsChanges lists a small package.
func TestListingFindsChanges(t *testing.T) {
	const source = `package p
type Open struct { A int; b int; Both }
type Both struct { C string }
func (o *Open) M(x int) error { return nil }
func (o *Open) m() {}
type shut struct{ D int }
const K = 1
type Closed interface { M(); m() }
var V []Open
func F() *shut { return nil }
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := new(types.Config).Check(module+"/p", fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, hidden := exported(p)
	want := []string{
		"p: type Both struct", "p: field Both.C string", "p: type Closed interface", "p: method Closed.M()",
		"p: method Closed.m (no other package implements it)", "p: func F() *shut", "p: const K untyped int = 1", "p: type Open struct",
		"p: field Open.A int", "p: field Open.Both Both (embedded)", "p: method (*Open) M(x int) error", "p: var V []Open",
	}
	if !slices.Equal(got, want) || len(hidden) > 0 {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	internal := types.NewPackage(module+"/internal/x", "x")
	named := types.NewNamed(types.NewTypeName(token.NoPos, internal, "T", nil), types.NewStruct(nil, nil), nil)
	p.Scope().Insert(types.NewVar(token.NoPos, p, "X", types.NewSlice(named)))
	if _, hidden := exported(p); len(hidden) != 1 || hidden[0] != "p: var X []x.T" {
		t.Errorf("hidden: %q", hidden)
	}
}

// publicPackages returns the types of the public packages.
func publicPackages(t *testing.T) []*types.Package {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles"}
	for _, dir := range public {
		args = append(args, "./"+dir)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	type listed struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
	}
	all := map[string]listed{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(all[path].Export) })
	var packages []*types.Package
	for _, dir := range public {
		p := all[path.Join(module, dir)]
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		checked, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, files, nil)
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, checked)
	}
	return packages
}

// exported returns a line for each exported declaration, field and method of a package, and those of them that mention a
// type of an internal package.
func exported(p *types.Package) (lines, hidden []string) {
	name := strings.TrimPrefix(strings.TrimPrefix(p.Path(), module), "/")
	if name == "" {
		name = p.Name()
	}
	mentions := false
	qualify := func(other *types.Package) string {
		switch {
		case other == p:
			return ""
		case strings.HasPrefix(other.Path(), module+"/internal/"):
			mentions = true
		}
		return other.Name()
	}
	add := func(format string, args ...any) {
		line := name + ": " + fmt.Sprintf(format, args...)
		lines = append(lines, line)
		if mentions {
			hidden = append(hidden, line)
		}
		mentions = false
	}
	text := func(t types.Type) string { return types.TypeString(t, qualify) }
	signature := func(f *types.Func) string { return strings.TrimPrefix(text(f.Type()), "func") }
	for _, n := range p.Scope().Names() {
		o := p.Scope().Lookup(n)
		if !o.Exported() {
			continue
		}
		switch o := o.(type) {
		case *types.Const:
			add("const %s %s = %s", n, text(o.Type()), o.Val())
		case *types.Var:
			add("var %s %s", n, text(o.Type()))
		case *types.Func:
			add("func %s%s", n, signature(o))
		case *types.TypeName:
			if o.IsAlias() {
				add("type %s = %s", n, text(types.Unalias(o.Type())))
				continue
			}
			addType(add, text, o)
			named := o.Type().(*types.Named)
			for m := range named.Methods() {
				if m.Exported() {
					add("method (%s) %s%s", text(m.Signature().Recv().Type()), m.Name(), signature(m))
				}
			}
		}
	}
	return lines, hidden
}

// addType adds the lines of a type without its methods.
func addType(add func(string, ...any), text func(types.Type) string, o *types.TypeName) {
	switch u := o.Type().Underlying().(type) {
	case *types.Struct:
		add("type %s struct", o.Name())
		for f := range u.Fields() {
			switch {
			case f.Exported() && f.Embedded():
				add("field %s.%s %s (embedded)", o.Name(), f.Name(), text(f.Type()))
			case f.Exported():
				add("field %s.%s %s", o.Name(), f.Name(), text(f.Type()))
			}
		}
	case *types.Interface:
		add("type %s interface", o.Name())
		for m := range u.Methods() {
			if m.Exported() {
				add("method %s.%s%s", o.Name(), m.Name(), strings.TrimPrefix(text(m.Type()), "func"))
			} else {
				add("method %s.%s (no other package implements it)", o.Name(), m.Name())
			}
		}
	default:
		add("type %s %s", o.Name(), text(u))
	}
}
