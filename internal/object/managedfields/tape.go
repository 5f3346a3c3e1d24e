package managedfields

import (
	"encoding/binary"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Most objects are created from a template: a controller creates thousands of Pods that have the same fields with
// other values. Their field sets are the same, so the set is not built and encoded for each of them. The walk over a
// new object writes a tape first: the steps that it takes and the paths that it records, a few hundred bytes. The
// Cache has the encoded field set for the tapes that were met last.
//
// For example, the tape of a ConfigMap with data {"a": ...} is
//
//	field "data", field "a", add, pop, add, pop

// The elements of a tape. A tape is never decoded, but it must be unambiguous, so each element contains its length.
const (
	// tapePrefix begins the key of a tape in the Cache. No encoded field set begins with it.
	tapePrefix byte = iota
	// tapeName and tapeItem begin a step to a field and to a list item.
	tapeName
	tapeItem
	tapePop
	// tapeAdd records the path in the set changed, and tapeAdd+1 in the set removed.
	tapeAdd
)

func (w *walk) tapeText(text string) {
	w.tape = append(binary.AppendUvarint(w.tape, uint64(len(text))), text...)
}

func (w *walk) tapeField(name string) {
	w.tape = append(w.tape, tapeName)
	w.tapeText(name)
}

func (w *walk) tapeStep(s *step) {
	if s.kind == fieldStep {
		w.tapeField(s.name)
		return
	}
	w.tape = append(w.tape, tapeItem, byte(s.kind))
	w.tape = binary.AppendUvarint(w.tape, uint64(len(s.parts)))
	for i := range s.parts {
		p := &s.parts[i]
		w.tapeText(p.name)
		w.tape = append(w.tape, byte(p.kind))
		if p.kind == textPart {
			w.tapeText(p.text)
		} else {
			w.tape = binary.AppendVarint(w.tape, p.num)
		}
	}
}

// create is update for a new object of a Go type that the client sent without managedFields. It returns false, and
// leaves the object as it is, if update has to do the work.
func (inc *incremental) create(object registry.Object, manager string, now time.Time) bool {
	if inc.plan == nil || object.GetManagedFields() != nil || reflect.TypeOf(object) != reflect.TypeOf(inc.blank) {
		return false
	}
	w := walks.Get().(*walk)
	defer walks.Put(w)
	w.begin(inc.reset)
	w.taping, w.tape = true, append(append(w.tape[:0], tapePrefix), inc.tapeName...)
	w.values(inc.plan, reflect.ValueOf(inc.blank), reflect.ValueOf(object))
	if w.failed {
		return false
	}
	key := w.tape
	if cap(key) > maxBuffer {
		w.tape = nil
	}
	raw, ok := inc.cache.fields(key)
	if !ok {
		if raw, ok = inc.fieldsOfNew(w, object); !ok {
			return false
		}
		inc.cache.keepFields(key, raw)
	}
	if len(raw) == 0 {
		return true
	}
	if manager == "" {
		manager = "unknown"
	}
	entry := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: inc.m.apiVersion,
		FieldsType: "FieldsV1", Subresource: inc.m.config.Subresource, Time: &metav1.Time{Time: now.UTC()},
		FieldsV1: &metav1.FieldsV1{Raw: raw}, // entries are immutable
	}
	object.SetManagedFields([]metav1.ManagedFieldsEntry{entry})
	return true
}

// fieldsOfNew returns the encoded set of the fields that a new object sets; nil if it sets none.
func (inc *incremental) fieldsOfNew(w *walk, object registry.Object) ([]byte, bool) {
	if !inc.compare(w, inc.blank, object) {
		return nil, false
	}
	own := w.result(changed).without(inc.reset).difference(neverOwned)
	if own.empty() {
		return nil, true
	}
	return own.fields(nil)
}
