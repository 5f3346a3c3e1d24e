package structuralschema

import "github.com/keelson-dev/keelson/internal/machinery/scheme"

// KeepEmpty replaces, in place, null by an empty map where the applied configuration has an empty map and the
// schema does not allow null. The merge leaves such a null if the manager has applied members of the map before
// and now applies none (kube-apiserver answers 422 to such an apply). It is called after the merge, with the
// defaults set.
func (s *Schema) KeepEmpty(merged, configuration any) {
	if s == nil {
		return
	}
	switch from := configuration.(type) {
	case map[string]any:
		to, _ := merged.(map[string]any)
		for name, v := range from {
			_, below := s.property(name)
			if below == nil {
				continue
			}
			left, has := to[name]
			if empty, isMap := v.(map[string]any); has && left == nil && isMap && len(empty) == 0 && below.refusesNull() {
				to[name] = map[string]any{}
				continue
			}
			below.KeepEmpty(left, v)
		}
	case []any:
		to, _ := merged.([]any)
		if s.ListType == "map" {
			s.keepEmptyItems(to, from)
		}
	}
}

// keepEmptyItems is KeepEmpty for a list with keys. The merge keeps the items of the configuration in their order, with
// others between them. The items of other lists are replaced as a whole.
func (s *Schema) keepEmptyItems(merged, configuration []any) {
	for _, left := range merged {
		if len(configuration) == 0 {
			return
		}
		if s.sameItem(left, configuration[0]) {
			s.Items.KeepEmpty(left, configuration[0])
			configuration = configuration[1:]
		}
	}
}

// sameItem reports whether two items of a list of type map have the same keys.
func (s *Schema) sameItem(a, b any) bool {
	left, _ := a.(map[string]any)
	right, _ := b.(map[string]any)
	for _, key := range s.ListMapKeys {
		v, sent := right[key]
		if property := s.Items.Properties[key]; !sent && property != nil {
			v = property.Default
		}
		if !scheme.EqualTreeValues(left[key], v) {
			return false
		}
	}
	return true
}

func (s *Schema) refusesNull() bool { return s.Type == "object" && !s.Nullable }
