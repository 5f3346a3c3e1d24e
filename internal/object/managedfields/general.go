package managedfields

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// updateGeneral is Update by the general algorithm.
func (m *Manager) updateGeneral(
	ctx context.Context, live, object registry.Object, manager string, now time.Time,
) (result registry.Object) {
	defer func() {
		// The algorithm panics if the conversion method of a value returns an error.
		if recover() != nil {
			object.SetManagedFields(live.GetManagedFields())
			result = object
		}
	}()
	kinds := object.GetObjectKind()
	kind := kinds.GroupVersionKind()
	defer kinds.SetGroupVersionKind(kind)
	kinds.SetGroupVersionKind(m.config.Kind)
	if live.GetObjectKind().GroupVersionKind() != m.config.Kind {
		live = live.DeepCopyObject().(registry.Object)
		live.GetObjectKind().SetGroupVersionKind(m.config.Kind)
	}
	live, _ = m.repaired(live)
	before := append(append([]metav1.ManagedFieldsEntry{}, object.GetManagedFields()...), live.GetManagedFields()...)
	general, err := m.generalFor(ctx)
	if err != nil {
		object.SetManagedFields(live.GetManagedFields())
		return object
	}
	out, err := general.Update(live, object, manager)
	if err != nil {
		object.SetManagedFields(live.GetManagedFields())
		return object
	}
	result = out.(registry.Object)
	stamp(result, before, now)
	return result
}

// applyGeneral is Apply by the general algorithm.
func (m *Manager) applyGeneral(
	ctx context.Context, live registry.Object, configuration map[string]any, manager string, force bool, now time.Time,
) (result registry.Object, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = nil, internalError(fmt.Errorf("failed to apply: %v", p))
		}
	}()
	live, dropped := m.repaired(live)
	live = live.DeepCopyObject().(registry.Object)
	live.GetObjectKind().SetGroupVersionKind(m.config.Kind)
	before := live.GetManagedFields()
	// Without the copy, the result could contain parts of the configuration.
	patch := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(configuration)}
	general, err := m.generalFor(ctx)
	if err != nil {
		return nil, internalError(err)
	}
	out, err := general.Apply(live, patch, manager, force)
	if err != nil {
		var status kerrors.APIStatus
		if errors.As(err, &status) {
			return nil, err
		}
		return nil, internalError(err)
	}
	if out.GetObjectKind().GroupVersionKind().GroupVersion() != m.config.Kind.GroupVersion() {
		if out, err = (&converter{config: m.config}).ConvertToVersion(out, m.config.Kind.GroupVersion()); err != nil {
			return nil, internalError(err)
		}
	}
	warnDropped(ctx, dropped)
	result = out.(registry.Object)
	stamp(result, before, now)
	return result, nil
}

// stamp sets the time of the request in those entries whose time the general algorithm took from the clock.
func stamp(object registry.Object, before []metav1.ManagedFieldsEntry, now time.Time) {
	known := make(map[*metav1.Time]bool, len(before))
	for i := range before {
		known[before[i].Time] = true
	}
	entries := object.GetManagedFields()
	changed := false
	for i := range entries {
		if t := entries[i].Time; t != nil && !known[t] && !isOld(*t, before) {
			entries[i].Time = &metav1.Time{Time: now.UTC()}
			changed = true
		}
	}
	if changed {
		sort.SliceStable(entries, func(i, j int) bool { return entryLess(&entries[i], &entries[j]) })
		object.SetManagedFields(entries)
	}
}

// isOld reports whether an entry in before has the time t. It is for trees; for Go types, the pointers to the
// times are compared.
func isOld(t metav1.Time, before []metav1.ManagedFieldsEntry) bool {
	if t.Nanosecond() != 0 {
		return false
	}
	for i := range before {
		if b := before[i].Time; b != nil && b.Time.Equal(t.Time) {
			return true
		}
	}
	return false
}

// entryLess is the order of the entries of an object.
func entryLess(p, q *metav1.ManagedFieldsEntry) bool {
	if p.Operation != q.Operation {
		return p.Operation < q.Operation
	}
	if a, b := seconds(p.Time), seconds(q.Time); a != b {
		return a < b
	}
	if p.Manager != q.Manager {
		return p.Manager < q.Manager
	}
	if p.APIVersion != q.APIVersion {
		return p.APIVersion < q.APIVersion
	}
	return p.Subresource < q.Subresource
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}
