package rules

import (
	"reflect"
	"strconv"

	"github.com/keelson-dev/keelson/structural"
)

// A correlation is a value of an update with its counterpart from before, to tell
// whether it changed. Nil is a value that is always judged: that of a new object, and
// apiVersion and kind of an update, where versions are converted. It belongs to one
// evaluation.
type correlation struct {
	// above is the next correlation with a counterpart: it stands for a value that
	// has none.
	above *correlation

	known      bool // there is a counterpart
	schema     *structural.Schema
	value, old any

	compared, same bool
}

// member returns the correlation of a member of an object.
func (c *correlation) member(name string) *correlation {
	if c == nil || !c.known {
		return c
	}
	if c.above == nil && (name == "apiVersion" || name == "kind") {
		return nil
	}
	out := &correlation{above: c}
	value, _ := c.value.(map[string]any)
	old, _ := c.old.(map[string]any)
	out.value, out.known = value[name]
	if out.known {
		out.old, out.known = old[name]
	}
	out.schema = memberSchema(c.schema, name)
	out.known = out.known && out.schema != nil
	return out
}

// item returns the correlation of an item of a list and its counterpart, nil if it
// has none.
func (c *correlation) item(value, counterpart any) *correlation {
	if c == nil || !c.known {
		return c
	}
	return &correlation{above: c, known: counterpart != nil, schema: c.schema.Items, value: value, old: counterpart}
}

// unchanged reports whether the value, or what it is in if it has no counterpart, is
// what it was.
func (c *correlation) unchanged() bool {
	if c == nil {
		return false
	}
	if !c.known {
		return c.above.unchanged()
	}
	if !c.compared {
		c.compared, c.same = true, same(c.schema, c.value, c.old)
	}
	return c.same
}

// memberSchema returns the schema of an object's member, nil if it has none.
func memberSchema(s *structural.Schema, name string) *structural.Schema {
	if p := s.Properties[name]; p != nil {
		return p
	}
	return s.AdditionalProperties
}

// same reports whether a value is what it was. The order of lists that are maps does
// not matter; objects with members that have no schema are never the same.
func same(s *structural.Schema, value, old any) bool {
	switch value := value.(type) {
	case map[string]any:
		old, ok := old.(map[string]any)
		if !ok || len(value) != len(old) {
			return false
		}
		for name, v := range value {
			o, ok := old[name]
			below := memberSchema(s, name)
			if !ok || below == nil || !same(below, v, o) {
				return false
			}
		}
		return true
	case []any:
		old, ok := old.([]any)
		if !ok || len(value) != len(old) {
			return false
		}
		if s.ListType != "map" || s.Items == nil {
			return reflect.DeepEqual(value, old)
		}
		counterparts := counterparts(s, old)
		for _, v := range value {
			o := counterparts.of(v)
			if o == nil || !same(s.Items, v, o) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(value, old)
}

// An index finds the items of a list that is a map by their keys. It is filled when it
// is first asked.
type index struct {
	schema *structural.Schema
	list   []any
	byKey  map[string]any
}

// counterparts returns the index of the items that a list had before. Lists that are
// not maps have none.
func counterparts(s *structural.Schema, old []any) *index {
	if s.Type != "array" || s.ListType != "map" || len(s.ListMapKeys) == 0 {
		old = nil
	}
	return &index{schema: s, list: old}
}

// of returns the first item with the keys of the given one, nil if there is none.
func (x *index) of(item any) any {
	if len(x.list) == 0 {
		return nil
	}
	if x.byKey == nil {
		x.byKey = make(map[string]any, len(x.list))
		for _, item := range x.list {
			if key, ok := itemKey(x.schema, item); ok && x.byKey[key] == nil {
				x.byKey[key] = item
			}
		}
	}
	key, ok := itemKey(x.schema, item)
	if !ok {
		return nil
	}
	return x.byKey[key]
}

// itemKey returns the values of an item's keys as a string that is different for
// different ones. An item without all its keys has none.
func itemKey(s *structural.Schema, item any) (string, bool) {
	object, ok := item.(map[string]any)
	if !ok {
		return "", false
	}
	var key []byte
	for _, name := range s.ListMapKeys {
		switch v := object[name].(type) {
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
		key = append(key, 0)
	}
	return string(key), true
}
