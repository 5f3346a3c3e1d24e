package managedfields

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sfields "k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// An object may be stored with entries that cannot be used: another program has written it to etcd, a version was
// removed from a definition, or an old release let admission write anything. kube-apiserver then fails each apply
// to the object, and any other write removes all its managedFields. Here the entries that cannot be used are
// dropped, and the next write stores the others. Otherwise every later apply to the object would fail.

// repaired returns live without the entries that cannot be used, and what was wrong with each. It returns live itself if all
// can be used; otherwise a copy.
func (m *Manager) repaired(live registry.Object) (registry.Object, []string) {
	entries, problems := readEntries(live)
	kept := make([]metav1.ManagedFieldsEntry, 0, len(entries))
	for i := range entries {
		if err := m.usable(&entries[i]); err != nil {
			problems = append(problems, fmt.Sprintf("manager %q: %v", entries[i].Manager, err))
		} else {
			kept = append(kept, entries[i])
		}
	}
	if len(problems) == 0 {
		return live, nil
	}
	live = live.DeepCopyObject().(registry.Object)
	if len(kept) == 0 {
		kept = nil
	}
	SetEntries(live, kept)
	return live, problems
}

// usable returns why an entry cannot be used; nil if it can.
func (m *Manager) usable(e *metav1.ManagedFieldsEntry) error {
	if err := k8sfields.ValidateManagedFields([]metav1.ManagedFieldsEntry{*e}); err != nil {
		return err
	}
	if !m.config.Custom {
		return nil // the general algorithm drops the entries of unknown versions
	}
	gv, err := schema.ParseGroupVersion(e.APIVersion)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(m.config.Versions, func(v Version) bool { return v.GroupVersion == gv }) {
		return fmt.Errorf("%s has no version %s", m.config.Kind.Kind, gv)
	}
	return nil
}

// warnDropped tells the client which entries were dropped.
func warnDropped(ctx context.Context, problems []string) {
	for _, problem := range problems {
		request.Warn(ctx, ".metadata.managedFields: an entry was dropped because it cannot be used: "+problem)
	}
}

// readEntries returns the managedFields entries of an object. It leaves out entries of an unstructured object that cannot be
// decoded; problems says what is wrong with each.
func readEntries(object registry.Object) (entries []metav1.ManagedFieldsEntry, problems []string) {
	tree, isTree := object.(*unstructured.Unstructured)
	if !isTree {
		return object.GetManagedFields(), nil
	}
	meta, _ := tree.Object["metadata"].(map[string]any)
	list, isList := meta[managedFields].([]any)
	if !isList && meta[managedFields] != nil {
		return nil, []string{"managedFields is not a list"}
	}
	for _, v := range list {
		var e metav1.ManagedFieldsEntry
		fields, _ := v.(map[string]any)
		if fields == nil {
			problems = append(problems, "it is not an object")
		} else if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &e); err != nil {
			problems = append(problems, err.Error())
		} else {
			entries = append(entries, e)
		}
	}
	return entries, problems
}

// SetEntries makes entries the managedFields of an object.
func SetEntries(object registry.Object, entries []metav1.ManagedFieldsEntry) {
	if tree, isTree := object.(*unstructured.Unstructured); isTree {
		// SetManagedFields does nothing if the member is of another type.
		if meta, ok := tree.Object["metadata"].(map[string]any); ok {
			delete(meta, managedFields)
		}
	}
	object.SetManagedFields(entries)
}

// Entries are the managedFields of an object at a moment.
type Entries struct {
	list []metav1.ManagedFieldsEntry // of a Go type
	tree any                         // of a tree
}

// EntriesOf returns the managedFields of an object. Later changes of the object do not change the result, because
// writers replace managedFields as a whole.
func EntriesOf(object registry.Object) Entries {
	if tree, isTree := object.(*unstructured.Unstructured); isTree {
		meta, _ := tree.Object["metadata"].(map[string]any)
		return Entries{tree: meta[managedFields]}
	}
	return Entries{list: object.GetManagedFields()}
}

// restoreInto makes e the managedFields of an object.
func (e Entries) restoreInto(object registry.Object) {
	SetEntries(object, nil)
	tree, isTree := object.(*unstructured.Unstructured)
	if !isTree {
		object.SetManagedFields(e.list)
		return
	}
	if meta, ok := tree.Object["metadata"].(map[string]any); ok && e.tree != nil {
		meta[managedFields] = e.tree
	}
}

// CheckChanged restores the managedFields of an object from before if they were changed and are invalid now. It
// also warns of this, as kube-apiserver does.
func CheckChanged(ctx context.Context, before Entries, object registry.Object) {
	entries, problems := readEntries(object)
	err := k8sfields.ValidateManagedFields(entries)
	if err == nil && len(problems) > 0 {
		err = fmt.Errorf("%s", problems[0])
	}
	if err == nil {
		return
	}
	if now := EntriesOf(object); reflect.DeepEqual(now, before) {
		return // admission has not touched them
	}
	before.restoreInto(object)
	request.Warn(ctx, fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; this could be caused by an "+
		"outdated mutating admission controller; please fix your requests: %v", err))
}
