package managedfields

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWorkedExample is the example in the comment of the package.
func TestWorkedExample(t *testing.T) {
	m := kindOf[appsv1.Deployment]("apps", "v1", "Deployment").manager(t)
	configuration := func(spec map[string]any) map[string]any {
		return map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "a"}, "spec": spec,
		}
	}
	live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}}
	live.Spec.Replicas, live.Spec.Paused = new(int32), true
	*live.Spec.Replicas = 3
	entry := func(operation metav1.ManagedFieldsOperationType, manager, fields string) metav1.ManagedFieldsEntry {
		set := &metav1.FieldsV1{}
		set.SetRawBytes([]byte(fields))
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: operation, APIVersion: "apps/v1", FieldsType: "FieldsV1", FieldsV1: set,
		}
	}
	live.ManagedFields = []metav1.ManagedFieldsEntry{
		entry(metav1.ManagedFieldsOperationApply, "app", `{"f:spec":{"f:paused":{},"f:replicas":{}}}`),
		entry(metav1.ManagedFieldsOperationUpdate, "scaler", `{"f:spec":{"f:replicas":{}}}`),
	}
	sent := configuration(map[string]any{"replicas": int64(5)})
	if _, err := m.Apply(context.Background(), live, sent, "app", false, testNow); !kerrors.IsConflict(err) {
		t.Errorf("without force: got %v", err)
	}
	object, err := m.Apply(context.Background(), live, sent, "app", true, testNow)
	if err != nil {
		t.Fatal(err)
	}
	got := object.(*appsv1.Deployment)
	if *got.Spec.Replicas != 5 || got.Spec.Paused {
		t.Errorf("got %+v", got.Spec)
	}
	const want = `Apply app apps/v1  {"f:spec":{"f:replicas":{}}}`
	if text := owned(got.ManagedFields); text != want || !got.ManagedFields[0].Time.Equal(&metav1.Time{Time: testNow}) {
		t.Errorf("got %s", described(got))
	}
}
