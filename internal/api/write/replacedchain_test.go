package write_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// TestWriteKeepsItsChain replaces the chain of admission in the middle of a write, which ends with the chain that it began
// with. The next write uses the other one.
func TestWriteKeepsItsChain(t *testing.T) {
	b := newBench(t, time.Now)
	var ran []string
	var current *admission.Chain
	plugin := func(name string, mutate func()) admission.Plugin {
		return admission.Plugin{
			Name: name,
			Mutate: func(context.Context, *admission.Attributes) error {
				ran = append(ran, name+" mutates")
				mutate()
				return nil
			},
			Validate: func(context.Context, *admission.Attributes) error {
				ran = append(ran, name+" validates")
				return nil
			},
			Charge: func(context.Context, *admission.Attributes) (*admission.Charge, error) {
				ran = append(ran, name+" charges")
				return nil, nil
			},
		}
	}
	other := admission.NewChain(nil, plugin("new", func() {}))
	current = admission.NewChain(nil, plugin("old", func() { current.Replace(other) }))
	p := write.New(b.Registry, current, nil, nil)
	resource := b.Resource(corev1.Resource("configmaps"))
	served := registry.NewServed(resource, resource.Kind.Version(resource.Kind.Storage.Version))
	for _, name := range []string{"one", "two"} {
		_, err := p.Do(t.Context(), write.Request{
			Verb: write.Create, Target: served, Namespace: "default",
			Make: func(context.Context, *write.Current) (registry.Object, error) {
				return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"old mutates", "old validates", "old charges", "new mutates", "new validates", "new charges"}
	if !slices.Equal(ran, want) {
		t.Errorf("%q ran, not %q", ran, want)
	}
}
