package quota

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

func newRegistry(t testing.TB) *registry.Registry {
	t.Helper()
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	c := cache.New(cache.Options{Store: store})
	t.Cleanup(func() {
		c.Close()
		_ = store.Close()
	})
	reg, err := registry.New(resource.Kinds(features.Gates{}), store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// TestWritesWithoutQuotasCostLittle counts the allocations of writes that no quota concerns.
func TestWritesWithoutQuotasCostLittle(t *testing.T) {
	p := Plugin(newRegistry(t), Config{})
	m := &corev1.ConfigMap{}
	m.Namespace, m.Name = "default", "a"
	create := admissiontest.Creation(corev1.Resource("configmaps"), m)
	update := admissiontest.Change(corev1.Resource("configmaps"), m, m)
	charge := func(n int) {
		a := create
		if n > 0 {
			a = update
		}
		if c, err := p.Charge(t.Context(), a); c != nil || err != nil {
			t.Fatal(c, err)
		}
	}
	charge(0)
	for i, most := range []float64{1, 0} {
		if n := testing.AllocsPerRun(100, func() { charge(i) }); n > most {
			t.Errorf("case %d: %.0f allocations, want at most %.0f", i, n, most)
		}
	}
}
