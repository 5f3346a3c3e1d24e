package structuralschema

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"math"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// digest is the hash of the content of a node and of everything below it. Nodes with the same digest are treated as
// equal.
type digest [sha256.Size]byte

// hashInput collects the content of a node. Different nodes give different bytes.
type hashInput struct{ bytes []byte }

func (c *hashInput) sum() digest { return sha256.Sum256(c.bytes) }

func (c *hashInput) child(d digest) { c.bytes = append(c.bytes, d[:]...) }

func (c *hashInput) number(n int) { c.bytes = binary.AppendUvarint(c.bytes, uint64(n)) }

func (c *hashInput) text(all ...string) {
	for _, s := range all {
		c.number(len(s))
		c.bytes = append(c.bytes, s...)
	}
}

func (c *hashInput) texts(all []string) {
	c.number(len(all))
	c.text(all...)
}

func (c *hashInput) flags(all ...bool) {
	for _, f := range all {
		b := byte(0)
		if f {
			b = 1
		}
		c.bytes = append(c.bytes, b)
	}
}

func (c *hashInput) ints(all ...*int64) {
	for _, p := range all {
		c.flags(p != nil)
		if p != nil {
			c.bytes = binary.LittleEndian.AppendUint64(c.bytes, uint64(*p))
		}
	}
}

func (c *hashInput) floats(all ...*float64) {
	for _, p := range all {
		c.flags(p != nil)
		if p != nil {
			c.bytes = binary.LittleEndian.AppendUint64(c.bytes, math.Float64bits(*p))
		}
	}
}

func (c *hashInput) rule(r *apiextensionsv1.ValidationRule) {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and booleans alone
	}
	c.text(string(text))
}

// values adds the conditions other than combinators, and reports whether there are any.
func (c *hashInput) values(v *Values, enum []apiextensionsv1.JSON) bool {
	any := v.Format != "" || v.Pattern != "" || v.UniqueItems || v.ExclusiveMaximum || v.ExclusiveMinimum ||
		v.Maximum != nil || v.Minimum != nil || v.MultipleOf != nil || v.MaxLength != nil || v.MinLength != nil ||
		v.MaxItems != nil || v.MinItems != nil || v.MaxProperties != nil || v.MinProperties != nil ||
		len(v.Required) > 0 || len(enum) > 0
	c.flags(any)
	if !any {
		return false
	}
	c.text(v.Format, v.Pattern)
	c.flags(v.UniqueItems, v.ExclusiveMaximum, v.ExclusiveMinimum)
	c.floats(v.Maximum, v.Minimum, v.MultipleOf)
	c.ints(v.MaxLength, v.MinLength, v.MaxItems, v.MinItems, v.MaxProperties, v.MinProperties)
	c.texts(v.Required)
	c.number(len(enum))
	for i := range enum {
		c.text(string(enum[i].Raw))
	}
	return true
}
