package structuralschema

import (
	"strconv"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// Unchanged reports whether value counts as unchanged for ratcheting (KEP-4008). Items of a list of type map are
// compared by their keys, so their order does not matter. An object with fields that the schema does not specify
// counts as changed.
func (s *Schema) Unchanged(value, old any) bool {
	switch value := value.(type) {
	case map[string]any:
		old, ok := old.(map[string]any)
		if !ok || len(value) != len(old) {
			return false
		}
		for name, v := range value {
			before, found := old[name]
			sub := s.Member(name)
			if !found || sub == nil || !sub.Unchanged(v, before) {
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
			return scheme.EqualTrees(value, old)
		}
		items := s.Keyed(old)
		for _, v := range value {
			before := items.Find(v)
			if before == nil || !s.Items.Unchanged(v, before) {
				return false
			}
		}
		return true
	}
	return scheme.EqualTrees(value, old)
}

// Member returns the schema of a field, nil if it has none.
func (s *Schema) Member(name string) *Schema {
	_, sub := s.property(name)
	return sub
}

// correlates reports whether the items of a list can be matched by keys with the items of an old list.
func (s *Schema) correlates() bool {
	return s.Items != nil && s.kinds == arrayKind && s.ListType == "map" && len(s.ListMapKeys) > 0
}

// Keyed finds items of a list of type map by their keys. If several items have the same keys, it finds the first.
// It must be used by one goroutine only.
type Keyed struct {
	names []string
	list  []any
	items map[string]any // built by the first Find
}

// Keyed returns the index of a list of this schema. It returns nil, which finds nothing, if the list is empty or is
// not of type map.
func (s *Schema) Keyed(list []any) *Keyed {
	if len(list) == 0 || !s.correlates() {
		return nil
	}
	return &Keyed{names: s.ListMapKeys, list: list}
}

// Find returns the item with the same keys as item, nil if there is none.
func (k *Keyed) Find(item any) any {
	if k == nil {
		return nil
	}
	key, ok := k.key(item)
	if !ok {
		return nil
	}
	if k.items == nil {
		k.items = make(map[string]any, len(k.list))
		for _, item := range k.list {
			key, ok := k.key(item)
			if !ok {
				continue
			}
			if _, taken := k.items[key]; !taken {
				k.items[key] = item
			}
		}
	}
	return k.items[key]
}

// key encodes the keys of an item. It returns false if a key is missing or is not a scalar.
func (k *Keyed) key(item any) (string, bool) {
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
