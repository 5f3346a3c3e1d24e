package server

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
)

// BenchmarkAdmission runs both passes of the default chain for creates.
func BenchmarkAdmission(b *testing.B) {
	s := start(b, testConfig(b))
	pod := &corev1.Pod{}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "b"}}
	for _, c := range []struct {
		resource string
		object   registry.Object
	}{{"configmaps", &corev1.ConfigMap{}}, {"pods", pod}} {
		b.Run(c.resource, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				o := c.object.DeepCopyObject().(registry.Object)
				o.SetNamespace("default")
				o.SetName("a")
				gvr := corev1.SchemeGroupVersion.WithResource(c.resource)
				kind := corev1.SchemeGroupVersion.WithKind(c.resource)
				names := admission.Names{Kind: kind, Resource: gvr}
				a := &admission.Attributes{
					Resource: gvr.GroupResource(), Requested: names, Stored: names, Namespace: "default", Name: "a", Object: o,
					User: &request.User{Name: "admin"},
				}
				if err := s.api.writes.Admission.Mutate(b.Context(), a); err != nil {
					b.Fatal(err)
				}
				if err := s.api.writes.Admission.Validate(b.Context(), a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
