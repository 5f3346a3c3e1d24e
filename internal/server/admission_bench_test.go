package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// judge runs the mutating and the validating pass of the admission chain for the creation of a copy of object.
func judge(b *testing.B, s *Server, resource, kind string, object registry.Object) {
	o := object.DeepCopyObject().(registry.Object)
	o.SetNamespace("default")
	o.SetName("a")
	gvr := corev1.SchemeGroupVersion.WithResource(resource)
	names := admission.Names{Kind: corev1.SchemeGroupVersion.WithKind(kind), Resource: gvr}
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

// BenchmarkAdmission measures the mutating and the validating pass of the default admission chain for creates.
func BenchmarkAdmission(b *testing.B) {
	s := start(b, testConfig(b))
	pod := &corev1.Pod{}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "b"}}
	for _, c := range []struct {
		resource, kind string
		object         registry.Object
	}{{"configmaps", "ConfigMap", &corev1.ConfigMap{}}, {"pods", "Pod", pod}} {
		b.Run(c.resource, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				judge(b, s, c.resource, c.kind, c.object)
			}
		})
	}
}

// BenchmarkPolicies measures both passes for a create to which 100 ValidatingAdmissionPolicies apply, each with
// three expressions. It also reports the time for one expression.
func BenchmarkPolicies(b *testing.B) {
	s := start(b, testConfig(b))
	const policies = 100
	send := func(resource, body string) {
		r := httptest.NewRequest("POST", apitest.AdmissionPath+resource, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer admintoken")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if s.http.server.Handler.ServeHTTP(w, r); w.Code != http.StatusCreated {
			b.Fatal(w.Code, w.Body)
		}
	}
	for i := range policies {
		send("validatingadmissionpolicies", fmt.Sprintf(`{"metadata":{"name":"p%d"},"spec":{"matchConstraints":{"resourceRules":[{`+
			`"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["configmaps","pods"]}]},"validations":[`+
			`{"expression":"object.metadata.name != 'forbidden-%d'"},`+
			`{"expression":"!has(object.metadata.labels) || object.metadata.labels.all(k, size(k) < 60)"},`+
			`{"expression":"request.userInfo.username != 'nobody' && request.operation == 'CREATE'"}]}}`, i, i))
		send("validatingadmissionpolicybindings", fmt.Sprintf(
			`{"metadata":{"name":"b%d"},"spec":{"policyName":"p%d","validationActions":["Deny"]}}`, i, i))
	}
	m := &corev1.ConfigMap{Data: map[string]string{"a": "b"}}
	m.Labels = map[string]string{"app": "web", "tier": "front"}
	pod := &corev1.Pod{}
	pod.Labels = m.Labels
	pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "b"}}
	for _, c := range []struct {
		resource, kind string
		object         registry.Object
	}{{"configmaps", "ConfigMap", m}, {"pods", "Pod", pod}} {
		b.Run(c.resource, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				judge(b, s, c.resource, c.kind, c.object)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(3*policies), "ns/expression")
		})
	}
}
