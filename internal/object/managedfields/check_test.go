package managedfields

import (
	"reflect"
	"slices"
	"testing"
)

// TestPlansMarkEveryField compiles the plan of each kind several times. A field whose values need a check has to be
// marked in whatever order the plans are looked at. That order is random, because they are in a map.
func TestPlansMarkEveryField(t *testing.T) {
	for _, kind := range testKinds() {
		f := kind.manager(t).incremental
		f.prepare()
		if f.plan == nil {
			continue
		}
		var first []string
		for i := range 40 {
			marked := markedFields(f.planned(reflect.TypeOf(f.blank)), "", map[*plan]bool{})
			if i == 0 {
				first = marked
			} else if !slices.Equal(marked, first) {
				t.Fatalf("%s: marked fields\n%q\nand then\n%q", kind.gvk.Kind, first, marked)
			}
		}
	}
}

// markedFields returns the paths of the fields of a plan that need a check. seen has the plans that were looked at.
func markedFields(p *plan, path string, seen map[*plan]bool) []string {
	if p == nil || seen[p] {
		return nil
	}
	seen[p] = true
	out := markedFields(p.element, path+"[]", seen)
	for i := range p.fields {
		f := &p.fields[i]
		if f.needsCheck {
			out = append(out, path+"."+f.name)
		}
		out = append(out, markedFields(f.plan, path+"."+f.name, seen)...)
	}
	return out
}
