package rules

import "github.com/keelson-dev/keelson/structural"

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
	out.schema = c.schema.Member(name)
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
		c.compared, c.same = true, c.schema.Unchanged(c.value, c.old)
	}
	return c.same
}
