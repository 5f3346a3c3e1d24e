package server

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// mutateConfigMap runs the mutating pass for the creation of a ConfigMap.
func mutateConfigMap(t testing.TB, s *Server) {
	gvr := corev1.SchemeGroupVersion.WithResource("configmaps")
	names := admission.Names{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: gvr}
	a := &admission.Attributes{
		Resource: gvr.GroupResource(), Requested: names, Stored: names, Namespace: "default", Name: "a",
		Object: &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}, Data: map[string]string{"a": "b"},
		},
		User: &request.User{Name: "admin"},
	}
	if err := s.api.writes.Admission.Mutate(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

// TestMutatingPoliciesCostOtherWritesNothing checks that policies that do not match a write allocate nothing.
func TestMutatingPoliciesCostOtherWritesNothing(t *testing.T) {
	s := start(t, testConfig(t))
	const runs = 200
	// Background work of the server allocates too, so the lowest of several measurements counts.
	allocations := func() float64 {
		lowest := math.Inf(1)
		for range 10 {
			lowest = min(lowest, testing.AllocsPerRun(runs, func() { mutateConfigMap(t, s) }))
		}
		return lowest
	}
	before := allocations()
	for _, name := range []string{"p", "q", "r"} {
		admin(t, s).Run(apitest.CreateMutatingPolicy(name, "", "secrets", apitest.ApplyMutation("Object{data: {'k': 'v'}}"), ""))
	}
	if after := allocations(); after > before {
		t.Errorf("%v allocations for a write that no policy matches, %v without policies", after, before)
	}
	admin(t, s).Run(apitest.CreateMutatingPolicy("s", "", "configmaps", apitest.ApplyMutation("Object{data: {'k': 'v'}}"), ""))
	if matched := allocations(); matched <= before {
		t.Errorf("%v allocations for a write that a policy matches; the test counts the wrong thing", matched)
	}
}

// BenchmarkMutatingPolicies measures the mutating pass. The pass is run twice if a policy was applied.
func BenchmarkMutatingPolicies(b *testing.B) {
	for _, c := range []struct{ name, resource, mutation string }{
		{"none", "", ""},
		{"unmatched", "secrets", apitest.ApplyMutation("Object{}")},
		{"applyConfiguration", "configmaps", apitest.ApplyMutation("Object{data: {'k': object.metadata.name}}")},
		{"jsonPatch", "configmaps", apitest.JSONPatchMutation("[JSONPatch{op: 'add', path: '/data/k', value: object.metadata.name}]")},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := start(b, testConfig(b))
			if c.resource != "" {
				admin(b, s).Run(apitest.CreateMutatingPolicy("p", "", c.resource, c.mutation, ""))
			}
			b.ReportAllocs()
			for b.Loop() {
				mutateConfigMap(b, s)
			}
		})
	}
}
