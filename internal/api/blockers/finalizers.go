package blockers

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// removers has the finalizers of objects of any kind and of well-known custom resources. Kind.Finalizers has those
// of a built-in kind.
var removers = []registry.Finalizer{
	{Name: metav1.FinalizerDeleteDependents, Remover: "the garbage collector", When: "when no dependent with blockOwnerDeletion is left"},
	{Name: metav1.FinalizerOrphanDependents, Remover: "the garbage collector", When: "when no dependent refers to the object any more"},
	{
		Name:    "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection",
		Remover: "the snapshot controller", When: "when no claim is being made from the snapshot",
	},
	{
		Name:    "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection",
		Remover: "the snapshot controller", When: "when the content of the snapshot is deleted",
	},
	{
		Name:    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection",
		Remover: "the snapshot controller", When: "when the snapshot that the content is bound to is deleted",
	},
}

// removerOf returns the known finalizer with this name, or nil if there is none.
func (f *Finder) removerOf(name string) *registry.Finalizer {
	find := func(list []registry.Finalizer) *registry.Finalizer {
		if i := slices.IndexFunc(list, func(known registry.Finalizer) bool { return known.Is(name) }); i >= 0 {
			return &list[i]
		}
		return nil
	}
	for _, kind := range f.Kinds {
		if known := find(kind.Finalizers); known != nil {
			return known
		}
	}
	return find(removers)
}

// addFinalizers adds the finalizers of the object.
func (s *search) addFinalizers() {
	names := s.obj.GetFinalizers()
	if n, ok := s.obj.(*corev1.Namespace); ok {
		for _, name := range n.Spec.Finalizers {
			names = append(slices.Clip(names), string(name))
		}
	}
	owners := ownersOf(s.obj)
	for _, name := range names {
		b := Blocker{Type: Finalizer, Name: name, Since: s.deletionBegan(), Change: s.added[name]}
		setters, change := owners[name].describe()
		if b.Change == nil {
			b.Change = change
		} else if at := b.Change.Time; at != nil && at.After(b.Since.Time) {
			b.Since = &metav1.Time{Time: at.Time}
		}
		known := s.removerOf(name)
		switch {
		case known != nil:
			b.Owner, b.Message = known.Remover, fmt.Sprintf("%s removes it %s.", capitalized(known.Remover), known.When)
		case setters != "":
			b.Owner = setters
			b.Message = fmt.Sprintf("Its controller has to remove it. By managedFields, it was set by %s.", setters)
		default:
			b.Message = "Its controller has to remove it. Which one that is, is not known: nobody owns the field."
		}
		s.add(b)
	}
}

// holders returns the given finalizers of another object with their owners, at most maxNamed. managers is that
// object with its managedFields, or nil if they were not read.
func (f *Finder) holders(finalizers []string, managers metav1.Object) (out []Holder) {
	owners := map[string]*owners{}
	if managers != nil {
		owners = ownersOf(managers)
	}
	for _, name := range finalizers[:min(len(finalizers), maxNamed)] {
		if known := f.removerOf(name); known != nil {
			out = append(out, Holder{name, known.Remover})
			continue
		}
		owner, _ := owners[name].describe()
		out = append(out, Holder{name, owner})
	}
	return out
}

// owners are the field managers that own a finalizer.
type owners struct {
	names  []string
	change *history.Change // the last change of the first of them, from managedFields
}

// ownersOf returns the owners of each finalizer of an object. An object may have very many finalizers, so its managedFields are read
// once for all of them.
func ownersOf(obj metav1.Object) map[string]*owners {
	all := map[string]*owners{}
	for _, entry := range obj.GetManagedFields() {
		var fields struct {
			Metadata struct {
				Finalizers map[string]json.RawMessage `json:"f:finalizers"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.Raw, &fields) != nil {
			continue
		}
		for field := range fields.Metadata.Finalizers {
			var finalizer string
			value, ok := strings.CutPrefix(field, "v:")
			if !ok || json.Unmarshal([]byte(value), &finalizer) != nil {
				continue
			}
			o := all[finalizer]
			if o == nil {
				o = &owners{change: changeOfManager(&entry)}
				all[finalizer] = o
			}
			if len(o.names) <= maxNamed && !slices.Contains(o.names, entry.Manager) {
				o.names = append(o.names, entry.Manager)
			}
		}
	}
	return all
}

// describe returns a text such as "the field manager a" for the owners, and the change of the first of them. It
// returns "" and nil if nobody owns the finalizer.
func (o *owners) describe() (owner string, change *history.Change) {
	switch {
	case o == nil:
		return "", nil
	case len(o.names) == 1:
		return "the field manager " + o.names[0], o.change
	case len(o.names) > maxNamed:
		return "the field managers " + strings.Join(o.names[:maxNamed], " and ") + " and others", o.change
	}
	return "the field managers " + strings.Join(o.names, " and "), o.change
}

// changeOfManager returns what an entry of managedFields says about the last change of its manager.
func changeOfManager(entry *metav1.ManagedFieldsEntry) *history.Change {
	c := &history.Change{Verb: strings.ToLower(string(entry.Operation)), Subresource: entry.Subresource, FieldManager: entry.Manager}
	if entry.Time != nil {
		c.Time = history.TimeOf(entry.Time.Time)
	}
	return c
}

// capitalized returns a text with a capital letter at the beginning.
func capitalized(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// shorten returns at most the first KiB of a text that somebody else has written.
func shorten(text string) string {
	const most = 1 << 10
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
