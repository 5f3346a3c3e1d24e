package structuralschema

import (
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// ValidateLists returns an error for each duplicate item in lists of type set, and for each item of a list of type
// map whose keys another item has. If a value occurs more than twice, only its second occurrence is reported.
func (s *Schema) ValidateLists(path *field.Path, tree any) field.ErrorList {
	if s == nil || s.below&hasUniqueLists == 0 {
		return nil
	}
	switch x := tree.(type) {
	case map[string]any:
		var found memberErrors
		for name, v := range x {
			if sub := s.AdditionalProperties; sub != nil && sub.below&hasUniqueLists != 0 {
				found = append(found, errorsOfMember{name, false, sub.ValidateLists(path.Key(name), v)})
			}
			if sub := s.Properties[name]; sub != nil && sub.below&hasUniqueLists != 0 {
				found = append(found, errorsOfMember{name, true, sub.ValidateLists(path.Child(name), v)})
			}
		}
		return found.appendTo(nil)
	case []any:
		var errs field.ErrorList
		switch s.ListType {
		case "set":
			errs = uniqueItems(path, x)
		case "map":
			errs = uniqueKeys(path, x, s.ListMapKeys)
		}
		if s.Items != nil && s.Items.below&hasUniqueLists != 0 {
			for i, v := range x {
				errs = append(errs, s.Items.ValidateLists(path.Index(i), v)...)
			}
		}
		return errs
	}
	return nil
}

// ValidateListsUpdate returns the errors of ValidateLists for tree, or none if old also has errors. So an object
// whose duplicates were written before the definition forbade them can still be updated.
func (s *Schema) ValidateListsUpdate(path *field.Path, tree, old any) field.ErrorList {
	errs := s.ValidateLists(path, tree)
	if len(errs) > 0 && len(s.ValidateLists(path, old)) > 0 {
		return nil
	}
	return errs
}

func uniqueItems(path *field.Path, items []any) field.ErrorList {
	var errs field.ErrorList
	for _, i := range duplicates(len(items), func(i int) any { return items[i] }) {
		errs = append(errs, field.Duplicate(path.Index(i), items[i]))
	}
	return errs
}

// noKey stands for the missing key of an item.
type noKey struct{}

func uniqueKeys(path *field.Path, items []any, names []string) field.ErrorList {
	for i, v := range items {
		if _, ok := v.(map[string]any); !ok && v != nil {
			return field.ErrorList{field.Invalid(path.Index(i), v, "must be an object for an array of list-type map")}
		}
	}
	key := func(i int) any { return keysOf(items[i], names) }
	if len(names) == 1 {
		key = func(i int) any {
			item, _ := items[i].(map[string]any)
			if v, found := item[names[0]]; found {
				return v
			}
			return noKey{}
		}
	}
	var errs field.ErrorList
	for _, i := range duplicates(len(items), key) {
		errs = append(errs, field.Duplicate(path.Index(i), keysOf(items[i], names)))
	}
	return errs
}

// keysOf returns the key fields of an item.
func keysOf(item any, names []string) map[string]any {
	out := map[string]any{}
	fields, _ := item.(map[string]any)
	for _, name := range names {
		if v, found := fields[name]; found {
			out[name] = v
		}
	}
	return out
}

// smallCount is the largest number of values that are compared pairwise rather than by a map.
const smallCount = 8

// duplicates returns the indexes at which a value occurs for the second time. Values of different types are
// different, for example the integer 1 and the float 1.0.
func duplicates(n int, value func(int) any) []int {
	if n <= 1 {
		return nil
	}
	if n <= smallCount {
		return smallDuplicates(n, value)
	}
	var out []int
	seen := make(map[any]int, n)
	for i := range n {
		v := comparableOf(value(i))
		if seen[v]++; seen[v] == 2 {
			out = append(out, i)
		}
	}
	return out
}

// compound is the JSON encoding of an object or a list.
type compound string

// comparableOf returns a value that can be a map key and is equal for equal values.
func comparableOf(v any) any {
	switch v.(type) {
	case map[string]any, []any:
		text, err := json.Marshal(v)
		if err != nil {
			return new(int) // a value without an encoding equals no other
		}
		return compound(text)
	}
	return v
}

func smallDuplicates(n int, value func(int) any) []int {
	var seen [smallCount]any
	var out []int
	for i := range n {
		seen[i] = value(i)
		before := 0
		for j := range i {
			if scheme.EqualTrees(seen[j], seen[i]) {
				before++
			}
		}
		if before == 1 {
			out = append(out, i)
		}
	}
	return out
}
