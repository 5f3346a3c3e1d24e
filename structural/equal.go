package structural

import "strconv"

// equalTrees compares trees; 1 and 1.0 differ.
func equalTrees(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) || (a == nil) != (b == nil) {
			return false
		}
		for name, v := range a {
			other, found := b[name]
			if !found || !equalTrees(v, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) || (a == nil) != (b == nil) {
			return false
		}
		for i := range a {
			if !equalTrees(a[i], b[i]) {
				return false
			}
		}
		return true
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

// unchanged says whether a value is what it was, as far as ratcheting can tell: items
// of a list of type map are found by their keys, wherever they are; an object with
// fields that the schema does not name counts as changed.
func (s *Schema) unchanged(value, old any) bool {
	switch value := value.(type) {
	case map[string]any:
		old, ok := old.(map[string]any)
		if !ok || len(value) != len(old) {
			return false
		}
		for name, v := range value {
			before, found := old[name]
			_, sub := s.property(name)
			if !found || sub == nil || !sub.unchanged(v, before) {
				return false
			}
		}
		return true
	case []any:
		old, ok := old.([]any)
		if !ok || len(value) != len(old) {
			return false
		}
		if !s.correlates() {
			return equalTrees(value, old)
		}
		items := itemsOf(old, s.ListMapKeys)
		for _, v := range value {
			before, found := items.find(v)
			if !found || !s.Items.unchanged(v, before) {
				return false
			}
		}
		return true
	}
	return equalTrees(value, old)
}

// correlates says whether the items of an array can be found in another by keys.
func (s *Schema) correlates() bool {
	return s.Items != nil && s.kinds == arrayKind && s.ListType == "map" && len(s.ListMapKeys) > 0
}

// keyed are the items of a list by their keys, each key's first.
type keyed struct {
	names []string
	items map[string]any
}

func itemsOf(list []any, names []string) *keyed {
	k := &keyed{names: names, items: make(map[string]any, len(list))}
	for _, item := range list {
		key, ok := k.key(item)
		if !ok {
			continue
		}
		if _, taken := k.items[key]; !taken {
			k.items[key] = item
		}
	}
	return k
}

// find returns the item that has the keys of this one.
func (k *keyed) find(item any) (any, bool) {
	key, ok := k.key(item)
	if !ok {
		return nil, false
	}
	found, ok := k.items[key]
	return found, ok
}

// key writes the keys of an item, which must be scalars.
func (k *keyed) key(item any) (string, bool) {
	fields, ok := item.(map[string]any)
	if !ok {
		return "", false
	}
	var key []byte
	for _, name := range k.names {
		switch v := fields[name].(type) {
		case string:
			key = strconv.AppendQuote(key, v)
		case bool:
			key = strconv.AppendBool(key, v)
		case int64:
			key = strconv.AppendInt(append(key, 'i'), v, 10)
		case float64:
			key = strconv.AppendFloat(append(key, 'f'), v, 'g', -1, 64)
		default:
			return "", false
		}
		key = append(key, ',')
	}
	return string(key), true
}
