package structural

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"math"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// digest is what the content of a node hashes to, everything below included. Nodes
// with the same digest are taken to be equal.
type digest [sha256.Size]byte

// content gathers what a node is, so that different nodes gather different bytes.
type content struct{ bytes []byte }

func (c *content) sum() digest { return sha256.Sum256(c.bytes) }

func (c *content) child(d digest) { c.bytes = append(c.bytes, d[:]...) }

func (c *content) number(n int) { c.bytes = binary.AppendUvarint(c.bytes, uint64(n)) }

func (c *content) text(all ...string) {
	for _, s := range all {
		c.number(len(s))
		c.bytes = append(c.bytes, s...)
	}
}

func (c *content) texts(all []string) {
	c.number(len(all))
	c.text(all...)
}

func (c *content) flags(all ...bool) {
	for _, f := range all {
		b := byte(0)
		if f {
			b = 1
		}
		c.bytes = append(c.bytes, b)
	}
}

func (c *content) ints(all ...*int64) {
	for _, p := range all {
		c.flags(p != nil)
		if p != nil {
			c.bytes = binary.LittleEndian.AppendUint64(c.bytes, uint64(*p))
		}
	}
}

func (c *content) floats(all ...*float64) {
	for _, p := range all {
		c.flags(p != nil)
		if p != nil {
			c.bytes = binary.LittleEndian.AppendUint64(c.bytes, math.Float64bits(*p))
		}
	}
}

func (c *content) rule(r *apiextensionsv1.ValidationRule) {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and booleans alone
	}
	c.text(string(text))
}

// values adds the conditions that are not combinators and says whether there are any.
func (c *content) values(v *Values, enum []apiextensionsv1.JSON) bool {
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
