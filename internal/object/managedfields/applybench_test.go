package managedfields

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// benchDeployment is what a client applies: about 2 KB of JSON.
func benchDeployment(t testing.TB) map[string]any {
	t.Helper()
	template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(benchPod(t))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "app", "namespace": "default", "labels": map[string]any{"app": "app"}},
		"spec": map[string]any{
			"replicas": int64(3), "selector": map[string]any{"matchLabels": map[string]any{"app": "app"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "app", "tier": "backend"}}, "spec": template["spec"],
			},
		},
	}
}

// appliedBy returns the object after several managers have applied to it. The first manager applies the whole
// configuration, each other manager applies an annotation.
func appliedBy(t testing.TB, m *Manager, configuration map[string]any, managers int) registry.Object {
	t.Helper()
	ctx := context.Background()
	live, err := m.Apply(ctx, nil, configuration, "manager0", false, testNow)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < managers; i++ {
		other := map[string]any{
			"apiVersion": configuration["apiVersion"], "kind": configuration["kind"],
			"metadata": map[string]any{"name": live.GetName(), "annotations": map[string]any{fmt.Sprint("note", i): "x"}},
		}
		live.SetUID("u")
		if live, err = m.Apply(ctx, live, other, fmt.Sprint("manager", i), false, testNow); err != nil {
			t.Fatal(err)
		}
	}
	live.SetUID("u")
	return live
}

// BenchmarkApply changes one field of an existing object that one or five managers apply to.
func BenchmarkApply(b *testing.B) {
	deployment := kindOf[appsv1.Deployment]("apps", "v1", "Deployment")
	configMap := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "settings", "namespace": "default", "labels": map[string]any{"app": "a"}},
		"data":     map[string]any{"a": "1", "b": "2", "c": "3"},
	}
	for _, c := range []struct {
		name          string
		kind          testKind
		configuration map[string]any
		path          []string
	}{
		{"Deployment", deployment, benchDeployment(b), []string{"spec", "replicas"}},
		{"ConfigMap", named("ConfigMap", ""), configMap, []string{"data", "a"}},
		{"CustomResource", asTrees(deployment, false), benchDeployment(b), []string{"spec", "replicas"}},
	} {
		m := c.kind.manager(b)
		for _, managers := range []int{1, 5} {
			live := appliedBy(b, m, c.configuration, managers)
			next := runtime.DeepCopyJSON(c.configuration)
			value := any("other")
			if c.path[1] == "replicas" {
				value = int64(5)
			}
			if err := unstructured.SetNestedField(next, value, c.path...); err != nil {
				b.Fatal(err)
			}
			name := fmt.Sprintf("%s/managers=%d", c.name, managers)
			b.Run(name+"/incremental", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := m.Apply(context.Background(), live, next, "manager0", false, time.Now()); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(name+"/general", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := m.applyGeneral(context.Background(), live, next, "manager0", false, time.Now()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
