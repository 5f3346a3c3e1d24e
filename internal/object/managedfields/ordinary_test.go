package managedfields

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestOrdinaryAppliesAreIncremental applies what clients ordinarily apply, and demands that the general
// algorithm is not needed for it.
func TestOrdinaryAppliesAreIncremental(t *testing.T) {
	deployment := kindOf[appsv1.Deployment]("apps", "v1", "Deployment")
	deployment.reset = reset("apps/v1", "status")
	container := func(c map[string]any, i int) map[string]any {
		list, _, err := unstructured.NestedSlice(c, "spec", "template", "spec", "containers")
		if err != nil {
			t.Fatal(err)
		}
		return list[i].(map[string]any)
	}
	set := func(c map[string]any, value any, path ...string) {
		if err := unstructured.SetNestedField(c, value, path...); err != nil {
			t.Fatal(err)
		}
	}
	changes := map[string]func(c map[string]any){
		"nothing":         func(map[string]any) {},
		"a field":         func(c map[string]any) { set(c, int64(7), "spec", "replicas") },
		"a field removed": func(c map[string]any) { unstructured.RemoveNestedField(c, "spec", "replicas") },
		"a label removed": func(c map[string]any) { unstructured.RemoveNestedField(c, "metadata", "labels", "app") },
		"a container": func(c map[string]any) {
			set(
				c, []any{container(c, 0), map[string]any{"name": "x", "image": "y"}, container(c, 1)}, "spec", "template", "spec",
				"containers",
			)
		},
		"a container removed": func(c map[string]any) {
			set(c, []any{container(c, 0)}, "spec", "template", "spec", "containers")
		},
		"containers in another order": func(c map[string]any) {
			set(c, []any{container(c, 1), container(c, 0)}, "spec", "template", "spec", "containers")
		},
		"a port removed": func(c map[string]any) {
			first := container(c, 0)
			first["ports"] = first["ports"].([]any)[:1]
			set(c, []any{first, container(c, 1)}, "spec", "template", "spec", "containers")
		},
		"a null time": func(c map[string]any) {
			set(c, nil, "metadata", "creationTimestamp")
			set(c, map[string]any{}, "spec", "strategy")
		},
		"the status": func(c map[string]any) { set(c, map[string]any{"replicas": int64(1)}, "status") },
		"a conflict": func(c map[string]any) { set(c, "other", "metadata", "annotations", "note1") },
	}
	for name, k := range map[string]testKind{"Go type": deployment, "tree": asTrees(deployment, false)} {
		m := k.manager(t)
		first := benchDeployment(t)
		for _, managers := range []int{1, 5} {
			live := appliedBy(t, m, first, managers)
			for change, of := range changes {
				next := runtime.DeepCopyJSON(first)
				of(next)
				if _, ok, err := m.incremental.apply(context.Background(), live, next, "manager0", false, testNow); !ok {
					t.Errorf("%s, %d managers: %s is left to the general algorithm", name, managers, change)
				} else if (err != nil) != (change == "a conflict" && managers > 1) {
					t.Errorf("%s, %d managers: %s: %v", name, managers, change, err)
				}
			}
		}
	}
}
