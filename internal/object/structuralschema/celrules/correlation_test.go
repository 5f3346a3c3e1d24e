package celrules

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
)

const ratchetSchema = `{"type":"object","properties":{
	"kind":{"type":"string"},
	"text":{"type":"string","nullable":true},
	"atomic":{"type":"array","items":{"type":"object","properties":{"a":{"type":"integer"}}}},
	"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
	"list":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k","p"],
		"items":{"type":"object","required":["k","p"],"properties":{"k":{"type":"string"},"p":{"type":"integer"},
			"v":{"type":"array","items":{"type":"string"}},
			"in":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["n"],
				"items":{"type":"object","required":["n"],"properties":{"n":{"x-kubernetes-int-or-string":true},
					"v":{"type":"number"}}}}}}},
	"map":{"type":"object","additionalProperties":{"type":"object","properties":{"x":{"type":"string"}}}},
	"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"known":{"type":"string"}}}}}`

// TestRatchetingAgainstLibrary compares, for random updates, which values count as unchanged with the result of
// the library, which keeps a tree of all values.
func TestRatchetingAgainstLibrary(t *testing.T) {
	s := parseSchema(t, ratchetSchema)
	changed, unchanged := 0, 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		old := randomValue(r, s)
		value := randomValue(r, s)
		if seed%4 > 0 {
			value = mutate(r, runtime.DeepCopyJSONValue(old))
		}
		walk := &ratchetWalk{t: t}
		walk.value("", s, value,
			&correlation{schema: s, value: value, old: old, known: true},
			twin{current: common.NewCorrelatedObject(value, old, newView(s))})
		changed += walk.changed
		unchanged += walk.unchanged
		if t.Failed() {
			t.Fatalf("seed %d\nold   %v\nvalue %v", seed, old, value)
		}
	}
	if changed == 0 || unchanged == 0 {
		t.Errorf("%d values changed, %d did not: nothing was compared", changed, unchanged)
	}
}

// twin is the position of a value in the tree of the library, nil if the library cannot match it with an old value.
type twin struct{ current, above *common.CorrelatedObject }

func (t twin) unchanged() bool {
	if t.current != nil {
		return t.current.CachedDeepEqual()
	}
	return t.above.CachedDeepEqual()
}

func (t twin) below(name string, child func() *common.CorrelatedObject) twin {
	switch {
	case t.current == nil:
		return t
	case t.above == nil && (name == "apiVersion" || name == "kind"):
		return twin{}
	}
	return twin{current: child(), above: t.current}
}

type ratchetWalk struct {
	t                  *testing.T
	changed, unchanged int
}

func (w *ratchetWalk) value(path string, s *structuralschema.Schema, value any, c *correlation, twin twin) {
	if value == nil || s == nil {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for name, below := range v {
			w.value(path+"."+name, s.Member(name), below, c.member(name),
				twin.below(name, func() *common.CorrelatedObject { return twin.current.Key(name) }))
		}
	case []any:
		var old []any
		if c != nil && c.known {
			old, _ = c.old.([]any)
		}
		counterparts := s.Keyed(old)
		for i, item := range v {
			w.value(fmt.Sprintf("%s[%d]", path, i), s.Items, item, c.item(item, counterparts.Find(item)),
				twin.below("", func() *common.CorrelatedObject { return twin.current.Index(i) }))
		}
	}
	got, want := c.unchanged(), twin.unchanged()
	if got != want {
		w.t.Errorf("%s: unchanged is %v, want %v", path, got, want)
	}
	if got {
		w.unchanged++
	} else {
		w.changed++
	}
}

// randomValue returns a small value that is valid by the schema. Equal values are likely.
func randomValue(r *rand.Rand, s *structuralschema.Schema) any {
	if s.Nullable && r.IntN(4) == 0 {
		return nil
	}
	switch s.Type {
	case "object":
		out := map[string]any{}
		for name, p := range s.Properties {
			if r.IntN(4) > 0 {
				out[name] = randomValue(r, p)
			}
		}
		for range r.IntN(3) {
			name := string(rune('a' + r.IntN(3)))
			if s.AdditionalProperties != nil {
				out[name] = randomValue(r, s.AdditionalProperties)
			} else if s.PreserveUnknownFields {
				out[name] = int64(r.IntN(2))
			}
		}
		return out
	case "array":
		out := make([]any, r.IntN(3))
		for i := range out {
			out[i] = randomValue(r, s.Items)
		}
		return out
	case "string":
		return string(rune('a' + r.IntN(3)))
	case "number":
		return float64(r.IntN(2)) + 0.5
	}
	if s.IntOrString && r.IntN(2) == 0 {
		return "1"
	}
	return int64(r.IntN(2))
}

// mutate returns a copy of a value with at most two changes; items of lists may be moved.
func mutate(r *rand.Rand, value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, below := range v {
			switch r.IntN(12) {
			case 0:
				delete(v, name)
			case 1, 2, 3:
				v[name] = mutate(r, below)
			}
		}
	case []any:
		r.Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
		for i := range v {
			if r.IntN(4) == 0 {
				v[i] = mutate(r, v[i])
			}
		}
	case string:
		return string(rune('a' + r.IntN(3)))
	case int64:
		return int64(r.IntN(2))
	}
	return value
}
