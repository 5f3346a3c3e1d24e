package managedfields

import (
	"context"
	"net/http"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// TestStoredEntriesThatCannotBeUsed has live objects with one good entry and one that cannot be used, as an old release or
// another program may have stored them. Applies and updates succeed, keep the good entry and drop the other one; an apply
// warns.
func TestStoredEntriesThatCannotBeUsed(t *testing.T) {
	entry := func(change func(*metav1.ManagedFieldsEntry)) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{
			Manager: "bad", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:a":{}}}}`),
		}
		change(&e)
		return e
	}
	bad := map[string]func(*metav1.ManagedFieldsEntry){
		"fields":        func(e *metav1.ManagedFieldsEntry) { e.FieldsV1 = metav1.NewFieldsV1(`{"zzz":{}}`) },
		"no operation":  func(e *metav1.ManagedFieldsEntry) { e.Operation = "" },
		"operation":     func(e *metav1.ManagedFieldsEntry) { e.Operation = "Y" },
		"no apiVersion": func(e *metav1.ManagedFieldsEntry) { e.APIVersion = "" },
		"no fieldsType": func(e *metav1.ManagedFieldsEntry) { e.FieldsType = "" },
		"fieldsType":    func(e *metav1.ManagedFieldsEntry) { e.FieldsType = "Z" },
		"other group":   func(e *metav1.ManagedFieldsEntry) { e.APIVersion = "other.example.com/v1" },
		"other version": func(e *metav1.ManagedFieldsEntry) { e.APIVersion = "example.com/v9" },
	}
	for _, k := range testKinds() {
		if k.sub != "" {
			continue
		}
		m := k.manager(t)
		_, m.config.Custom = k.make().(*unstructured.Unstructured)
		for name, change := range bad {
			live := k.make()
			live.SetName("a")
			live.SetUID("u")
			live.SetLabels(map[string]string{"a": "b", "c": "d"})
			live.GetObjectKind().SetGroupVersionKind(k.gvk)
			good := entry(func(e *metav1.ManagedFieldsEntry) {
				e.Manager, e.APIVersion, e.FieldsV1 = "good", k.gvk.GroupVersion().String(), metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:c":{}}}}`)
			})
			wrong := entry(func(e *metav1.ManagedFieldsEntry) {
				e.APIVersion = k.gvk.GroupVersion().String()
				change(e)
			})
			live.SetManagedFields([]metav1.ManagedFieldsEntry{good, wrong})
			check := func(what string, obj registry.Object, err error) {
				t.Helper()
				if err != nil {
					t.Errorf("%s, %s: %s: %v", k.gvk.Kind, name, what, err)
					return
				}
				var managers []string
				for _, e := range obj.GetManagedFields() {
					managers = append(managers, e.Manager)
				}
				slices.Sort(managers)
				if !slices.Equal(managers, []string{"good", "me"}) {
					t.Errorf("%s, %s: after %s the managers are %q", k.gvk.Kind, name, what, managers)
				}
			}
			warnings := &request.Warnings{}
			ctx := request.WithInfo(context.Background(), &request.Info{Warnings: warnings})
			obj, err := m.Apply(ctx, live, map[string]any{
				"apiVersion": k.gvk.GroupVersion().String(), "kind": k.gvk.Kind,
				"metadata": map[string]any{"name": "a", "labels": map[string]any{"x": "y"}},
			}, "me", false, testNow)
			check("an apply", obj, err)
			sent := http.Header{}
			warnings.WriteHeaders(sent)
			// Entries in other versions of built-in kinds are dropped silently, as in kube-apiserver.
			silent := !m.config.Custom && (name == "other group" || name == "other version")
			if warned := len(sent["Warning"]) == 1; warned == silent {
				t.Errorf("%s, %s: warnings %q", k.gvk.Kind, name, sent["Warning"])
			}
			updated := live.DeepCopyObject().(registry.Object)
			updated.SetLabels(map[string]string{"a": "b", "c": "d", "x": "y"})
			check("an update", m.Update(ctx, live, updated, "me", testNow), nil)
		}
	}
}
