package history

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// register is the model of one key.
type register struct {
	exists bool
	// revision of the object; 0 if it was written by a request whose response is unknown. The next read sets it.
	revision int64
	value    string
	label    string
	floor    int64 // every following change has a higher revision
}

func (r register) at(revision int64) bool {
	return r.revision == revision || r.revision == 0 && revision > r.floor
}

func (r register) written(o Op) register {
	return register{exists: true, revision: o.Revision, value: o.Value, label: o.Label, floor: max(r.floor, o.Revision)}
}

func (r register) deleted() register { return register{floor: r.floor} }

// step returns the states in which a request can leave the key. It returns none if the response is impossible in this
// state. For a List, only the entry of this key is considered.
func (r register) step(o Op) []register {
	switch o.Outcome {
	case Refused:
		return []register{r}
	case Unknown:
		if after, ok := r.attempt(o); ok {
			return []register{r, after}
		}
		return []register{r}
	case Missing:
		if r.exists {
			return nil
		}
		return []register{r}
	case Conflict:
		// An Update of a missing object returns Missing; a Create of an existing object returns Conflict.
		if !r.exists || o.If != 0 && r.revision == o.If {
			return nil
		}
		return []register{r}
	}
	if !o.Kind.Writes() {
		return r.read(o)
	}
	after, ok := r.attempt(o)
	if !ok || o.Kind != Delete && o.Revision <= r.floor {
		return nil
	}
	return []register{after}
}

// attempt returns the state after the request is carried out in this state, and whether it can be carried out.
func (r register) attempt(o Op) (register, bool) {
	switch o.Kind {
	case Create:
		return r.written(o), !r.exists
	case Delete:
		return r.deleted(), r.exists && (o.If == 0 || r.at(o.If))
	default:
		return r.written(o), r.exists && (o.If == 0 || r.at(o.If))
	}
}

func (r register) read(o Op) []register {
	if o.Kind == List && o.Revision < r.floor {
		return nil
	}
	if !o.Read.Exists() {
		if r.exists {
			return nil
		}
		r.floor = max(r.floor, o.Revision)
		return []register{r}
	}
	if !r.exists || !r.at(o.Read.Revision) || r.value != o.Read.Value || r.label != o.Read.Label {
		return nil
	}
	r.revision = o.Read.Revision
	r.floor = max(r.floor, r.revision, o.Revision) // the next change has a higher revision than the list
	return []register{r}
}

// model returns the register as a model for porcupine; initial is the state of the key at the start.
func model(initial register) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{initial} },
		Step: func(state, input, _ any) []any {
			var out []any
			for _, r := range state.(register).step(input.(Op)) {
				out = append(out, r)
			}
			return out
		},
	}
	return m.ToModel()
}

// CheckLinearizable searches, for each key, an order of the requests that explains all responses. A List counts as a
// read of every key. Keys start with the states in base, which may be nil. If the search for a key takes longer than
// limit, this is reported as a violation, too.
func CheckLinearizable(ops []Op, base map[string]State, limit time.Duration) error {
	var f findings
	byKey := perKey(ops)
	keys := make([]string, 0, len(byKey))
	for key := range byKey {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		initial := register{}
		if s, ok := base[key]; ok {
			initial = register{exists: true, revision: s.Revision, value: s.Value, label: s.Label, floor: s.Revision}
		}
		result := porcupine.CheckOperationsTimeout(model(initial), byKey[key], limit)
		switch result {
		case porcupine.Illegal:
			f.add(ErrLinearizable, key, "%s", transcript(byKey[key]))
		case porcupine.Unknown:
			f.add(ErrLinearizable, key, "not decided within %v over %d requests", limit, len(byKey[key]))
		}
	}
	return f.err()
}

// perKey splits requests by key.
func perKey(ops []Op) map[string][]porcupine.Operation {
	out := map[string][]porcupine.Operation{}
	add := func(key string, o Op) {
		out[key] = append(out[key], porcupine.Operation{
			ClientId: o.Client, Input: o, Call: int64(o.Call), Return: int64(o.Return),
		})
	}
	for _, o := range ops {
		if o.Kind != List && !(o.Kind == Get && o.Outcome == Unknown) {
			add(o.Key, o)
		}
	}
	for _, o := range ops {
		if o.Kind != List || o.Outcome != Done || o.If != 0 {
			continue
		}
		for key := range out {
			if o.Key != "" && !strings.HasPrefix(key, o.Key+"/") {
				continue
			}
			read := o
			read.Items, read.Read = nil, o.Items[key]
			add(key, read)
		}
	}
	return out
}

// transcript returns the last requests of a key as text, in the order of their calls.
func transcript(ops []porcupine.Operation) string {
	const most = 40
	ops = append([]porcupine.Operation(nil), ops...)
	sort.Slice(ops, func(i, j int) bool { return ops[i].Call < ops[j].Call })
	var b strings.Builder
	if len(ops) > most {
		fmt.Fprintf(&b, "(%d before) ", len(ops)-most)
		ops = ops[len(ops)-most:]
	}
	for _, o := range ops {
		fmt.Fprintf(&b, "\n  %v %+v", o.Input, o.Input.(Op).Read)
	}
	return b.String()
}
