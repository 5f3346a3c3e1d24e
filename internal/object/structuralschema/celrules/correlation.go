package celrules

import "github.com/keelson-dev/keelson/internal/object/structuralschema"

// correlation is a value of an update together with its old value; it reports whether the value changed. A nil
// correlation stands for a value that always counts as changed: a new object, and apiVersion and kind, which
// conversion changes. It belongs to one evaluation.
type correlation struct {
	// above is the nearest value above that has an old value. It decides for a value that has none.
	above *correlation

	known      bool // there is an old value
	schema     *structuralschema.Schema
	value, old any

	compared, same bool
}

// member returns the correlation of a field of an object.
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
	out.schema = c.schema.Member(name)
	out.known = out.known && out.schema != nil
	return out
}

// item returns the correlation of an item of a list with its old item, which may be nil.
func (c *correlation) item(value, counterpart any) *correlation {
	if c == nil || !c.known {
		return c
	}
	return &correlation{above: c, known: counterpart != nil, schema: c.schema.Items, value: value, old: counterpart}
}

// unchanged reports whether the value is equal to its old value. If it has none, unchanged reports this for the
// nearest value above that has one.
func (c *correlation) unchanged() bool {
	if c == nil {
		return false
	}
	if !c.known {
		return c.above.unchanged()
	}
	if !c.compared {
		c.compared, c.same = true, c.schema.Unchanged(c.value, c.old)
	}
	return c.same
}
