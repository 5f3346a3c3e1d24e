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

func (h *hashInput) sum() digest { return sha256.Sum256(h.bytes) }

func (h *hashInput) child(d digest) { h.bytes = append(h.bytes, d[:]...) }

func (h *hashInput) number(n int) { h.bytes = binary.AppendUvarint(h.bytes, uint64(n)) }

func (h *hashInput) text(all ...string) {
	for _, s := range all {
		h.number(len(s))
		h.bytes = append(h.bytes, s...)
	}
}

func (h *hashInput) texts(all []string) {
	h.number(len(all))
	h.text(all...)
}

func (h *hashInput) flags(all ...bool) {
	for _, f := range all {
		b := byte(0)
		if f {
			b = 1
		}
		h.bytes = append(h.bytes, b)
	}
}

func (h *hashInput) ints(all ...*int64) {
	for _, p := range all {
		h.flags(p != nil)
		if p != nil {
			h.bytes = binary.LittleEndian.AppendUint64(h.bytes, uint64(*p))
		}
	}
}

func (h *hashInput) floats(all ...*float64) {
	for _, p := range all {
		h.flags(p != nil)
		if p != nil {
			h.bytes = binary.LittleEndian.AppendUint64(h.bytes, math.Float64bits(*p))
		}
	}
}

func (h *hashInput) rule(r *apiextensionsv1.ValidationRule) {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // cannot happen: there are only strings and booleans
	}
	h.text(string(text))
}

// values adds the conditions other than combinators, and reports whether there are any.
func (h *hashInput) values(v *Values, enum []apiextensionsv1.JSON) bool {
	any := v.Format != "" || v.Pattern != "" || v.UniqueItems || v.ExclusiveMaximum || v.ExclusiveMinimum ||
		v.Maximum != nil || v.Minimum != nil || v.MultipleOf != nil || v.MaxLength != nil || v.MinLength != nil ||
		v.MaxItems != nil || v.MinItems != nil || v.MaxProperties != nil || v.MinProperties != nil ||
		len(v.Required) > 0 || len(enum) > 0
	h.flags(any)
	if !any {
		return false
	}
	h.text(v.Format, v.Pattern)
	h.flags(v.UniqueItems, v.ExclusiveMaximum, v.ExclusiveMinimum)
	h.floats(v.Maximum, v.Minimum, v.MultipleOf)
	h.ints(v.MaxLength, v.MinLength, v.MaxItems, v.MinItems, v.MaxProperties, v.MinProperties)
	h.texts(v.Required)
	h.number(len(enum))
	for i := range enum {
		h.text(string(enum[i].Raw))
	}
	return true
}
