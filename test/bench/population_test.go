package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestPopulations checks the objects of the populations: each is JSON, no two have the same path, and those that are
// read and watched are in the list.
func TestPopulations(t *testing.T) {
	const objects = 1000
	for _, p := range populations(&options{objects: objects}) {
		seen := map[string]bool{}
		for i := range objects {
			o := p.object(i)
			var body struct{ Metadata struct{ Name string } }
			if err := json.Unmarshal(o.body, &body); err != nil || body.Metadata.Name != o.name {
				t.Fatalf("%s: object %s has the body %s: %v", p.row, o.name, o.body, err)
			}
			if seen[o.path()] {
				t.Fatalf("%s: %s is there twice", p.row, o.path())
			}
			seen[o.path()] = true
		}
		kind := p.list[strings.LastIndexByte(p.list, '/'):]
		read := map[string]bool{}
		for i := range objects {
			o := p.listed(i, objects)
			if !strings.HasSuffix(o.collection, kind) || !seen[o.path()] {
				t.Fatalf("%s: %s is not in the list %s", p.row, o.path(), p.list)
			}
			read[o.path()] = true
		}
		if want := objects / p.every; len(read) != want {
			t.Errorf("%s: %d objects of the list are read, want %d", p.row, len(read), want)
		}
	}
}

// TestTheReaderMayReadOneNamespace checks that the objects bind the user reader once, to a Role in the namespace of the
// ConfigMap that it gets.
func TestTheReaderMayReadOneNamespace(t *testing.T) {
	p := permissions()
	binding, role := p.object(0), p.object(1)
	folder := strings.TrimSuffix(binding.collection, "/rolebindings")
	if !strings.HasPrefix(role.collection, folder+"/") || !strings.Contains(string(binding.body), `"`+role.name+`"`) {
		t.Errorf("%s does not bind %s", binding.body, role.path())
	}
	if name := folder[strings.LastIndexByte(folder, '/')+1:]; !strings.HasPrefix(p.readable, namespacesPath+"/"+name+"/") {
		t.Errorf("%s is not in the namespace %s", p.readable, name)
	}
	bound := slices.Collect(func(yield func(int) bool) {
		for i := range p.size {
			if strings.Contains(string(p.object(i).body), `"reader"`) && !yield(i) {
				return
			}
		}
	})
	if !slices.Equal(bound, []int{0}) {
		t.Errorf("objects %v name the reader", bound)
	}
}
