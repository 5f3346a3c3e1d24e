package declare

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestRules(t *testing.T) {
	type item struct{ Name, Value string }
	name := func(i *item) string { return i.Name }
	path := field.NewPath("x")
	list := []item{{"a", "1"}, {"b", "2"}, {"b", "3"}}
	for want, apply := range map[string]func(r *Rules){
		"": func(r *Rules) {
			r.Fixed(false, path)
			r.Kept(false, true, true, path)
			r.Unmodified(false, true, true, path)
			r.Forbidden(false, path)
			r.OneOf(path, []bool{true, true}, []bool{true, true}, "a", "b")
			SameElements(r, list[:1], list[:1], path, name)
			Text(r, "a", path, validate.ShortName[string])
		},
		"x: Invalid value: null: field is immutable":                func(r *Rules) { r.Fixed(true, path) },
		"x: Invalid value: null: field cannot be set once created":  func(r *Rules) { r.Kept(false, true, false, path) },
		"x: Invalid value: null: field cannot be cleared once set":  func(r *Rules) { r.Unmodified(true, false, true, path) },
		"x: Invalid value: null: field cannot be modified once set": func(r *Rules) { r.Unmodified(true, true, true, path) },
		"x: Forbidden":      func(r *Rules) { r.Forbidden(true, path) },
		"x: Required value": func(r *Rules) { Text(r, "", path, validate.ShortName[string]) },
		`x: Invalid value: "": must specify one of: ` + "`a`, `b`": func(r *Rules) {
			r.OneOf(path, []bool{false, false}, nil, "a", "b")
		},
		"[x[1]: Forbidden: item may not be added, x[2]: Forbidden: item may not be added]": func(r *Rules) {
			SameElements(r, list, list[:1], path, name)
		},
		"x: Forbidden: item may not be removed": func(r *Rules) { SameElements(r, nil, list[:2], path, name) },
		`[x[2]: Duplicate value: {"Name":"b","Value":"3"}, x[0]: Invalid value: "new": 1, x[2]: Invalid value: "2": 3]`: func(r *Rules) {
			Elements(r, list, list[1:2], path, name, func(value, old *item, path *field.Path) {
				was := "new"
				if old != nil {
					was = old.Value
				}
				r.Add(field.Invalid(path, was, value.Value))
			})
		},
	} {
		var r Rules
		apply(&r)
		got := ""
		if err := r.Errs.ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
