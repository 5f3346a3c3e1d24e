package versions_test

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/api/client/clienttest"
	"github.com/keelson-dev/keelson/internal/api/client/versions"
)

// scaler returns the names of HorizontalPodAutoscalers in a version. They are stored in version v2.
func scaler(version string) admission.Names {
	gv := schema.GroupVersion{Group: "autoscaling", Version: version}
	return admission.Names{
		Kind: gv.WithKind("HorizontalPodAutoscaler"), Resource: gv.WithResource("horizontalpodautoscalers"),
	}
}

var (
	deployments = admission.Names{
		Kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Resource: appsv1.SchemeGroupVersion.WithResource("deployments"),
	}
	scales = admission.Names{
		Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Resource: deployments.Resource,
	}
	unknown = admission.Names{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}}
)

func newVersions(t *testing.T) *versions.Versions {
	return versions.New(clienttest.New(t, "", "test").Directory)
}

// write returns a write, requested in version v1, of a HorizontalPodAutoscaler with a target of 70 percent.
func write() *admission.Attributes {
	percent := int32(70)
	return &admission.Attributes{Requested: scaler("v1"), Stored: scaler("v2"), Object: &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas: 3, Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
					Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{
						Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent,
					},
				},
			}},
		},
	}}
}

func TestEquivalents(t *testing.T) {
	v := newVersions(t)
	for _, test := range []struct {
		of          admission.Names
		subresource string
		want        string
	}{
		{scaler("v1"), "", "autoscaling/v2, Kind=HorizontalPodAutoscaler"},
		{scaler("v2"), "", "autoscaling/v1, Kind=HorizontalPodAutoscaler"},
		{scaler("v1"), "status", "autoscaling/v2, Kind=HorizontalPodAutoscaler"},
		{scaler("v1"), "nothing", ""},
		{admission.Names{Resource: corev1.SchemeGroupVersion.WithResource("events")}, "", "events.k8s.io/v1, Kind=Event"},
		{deployments, "", ""},
		{unknown, "", ""},
	} {
		var got []string
		for _, n := range v.Equivalents(t.Context(), test.of.Resource, test.subresource) {
			got = append(got, n.Kind.String())
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s %s: %q, want %q", test.of.Resource, test.subresource, got, test.want)
		}
	}
}

func TestConvert(t *testing.T) {
	v, a := newVersions(t), write()
	if got, err := v.Convert(t.Context(), a, a.Object, scaler("v2")); got != a.Object || err != nil {
		t.Errorf("in the version that is stored: %v %v", got, err)
	}
	got, err := v.Convert(t.Context(), a, a.Object, scaler("v1"))
	if old, ok := got.(*autoscalingv1.HorizontalPodAutoscaler); err != nil || !ok ||
		*old.Spec.TargetCPUUtilizationPercentage != 70 {
		t.Errorf("in v1: %+v %v", got, err)
	}
	if got, err := v.Convert(t.Context(), a, nil, scaler("v1")); got != nil || err != nil {
		t.Errorf("of no object: %v %v", got, err)
	}
	scale := &autoscalingv1.Scale{}
	if got, err := v.Convert(t.Context(), a, scale, scales); got != scale || err != nil {
		t.Errorf("of a body: %v %v", got, err)
	}
	if _, err := v.Convert(t.Context(), a, a.Object, unknown); err == nil {
		t.Error("an object was converted to a resource that is not served")
	}
}

func TestDocument(t *testing.T) {
	v, a := newVersions(t), write()
	for version, want := range map[string]string{
		"v1": `"targetCPUUtilizationPercentage":70`, "v2": `"averageUtilization":70`,
	} {
		got, err := v.Document(t.Context(), a, a.Object, scaler(version))
		if err != nil || !json.Valid(got) || !strings.Contains(string(got), want) ||
			!strings.Contains(string(got), `"apiVersion":"autoscaling/`+version+`"`) {
			t.Errorf("%s: %s %v", version, got, err)
		}
	}
	if got, err := v.Document(t.Context(), a, nil, scaler("v1")); got != nil || err != nil {
		t.Errorf("of no object: %s %v", got, err)
	}
}

// TestTypes checks whether the merge schema that Types returns for a kind knows a Scale.
func TestTypes(t *testing.T) {
	v := newVersions(t)
	for _, test := range []struct {
		names admission.Names
		known bool
	}{{deployments, true}, {scaler("v1"), true}, {scales, false}} {
		types, err := v.Types(t.Context(), test.names)
		if err != nil {
			t.Fatal(err)
		}
		scale := &autoscalingv1.Scale{}
		scale.SetGroupVersionKind(scales.Kind)
		if _, err := types.ObjectToTyped(scale); (err == nil) != test.known {
			t.Errorf("%s: %v", test.names.Kind, err)
		}
	}
	if _, err := v.Types(t.Context(), unknown); err == nil {
		t.Error("a resource that is not served has types")
	}
}

// TestReplace replaces the object of a write by documents.
func TestReplace(t *testing.T) {
	const spec = `"metadata":{"name":"a"},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"d"},"maxReplicas":3`
	v := newVersions(t)
	for _, test := range []struct {
		version, document string
		strict            bool
		percent           int32
		err               string
	}{
		{"v1", `{"apiVersion":"autoscaling/v1",` + spec + `,"targetCPUUtilizationPercentage":50}}`, true, 50, ""},
		{"v2", `{"apiVersion":"autoscaling/v2",` + spec + `}}`, true, 80, ""}, // the default
		{"v2", `{"apiVersion":"autoscaling/v2",` + spec + `,"nothing":1}}`, false, 80, ""},
		{"v2", `{"apiVersion":"autoscaling/v2",` + spec + `,"nothing":1}}`, true, 0, `unknown field "spec.nothing"`},
		{"v2", `{`, true, 0, "unexpected"},
	} {
		a := write()
		err := v.Replace(t.Context(), a, []byte(test.document), scaler(test.version), test.strict)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v", test.document, err)
		}
		if err != nil {
			continue
		}
		got, ok := a.Object.(*autoscalingv2.HorizontalPodAutoscaler)
		if !ok || got.Spec.MaxReplicas != 3 || *got.Spec.MinReplicas != 1 {
			t.Errorf("%s: %+v", test.document, a.Object)
		}
		if percent := got.Spec.Metrics[0].Resource.Target.AverageUtilization; *percent != test.percent {
			t.Errorf("%s: %d percent, want %d", test.document, *percent, test.percent)
		}
	}
}

// TestReplaceTree replaces objects by decoded documents, also the body of a subresource.
func TestReplaceTree(t *testing.T) {
	v, a := newVersions(t), write()
	tree := map[string]any{"metadata": map[string]any{"name": "b"}, "spec": map[string]any{"maxReplicas": int64(9)}}
	if err := v.ReplaceTree(t.Context(), a, tree, scaler("v1")); err != nil {
		t.Fatal(err)
	}
	if got := a.Object.(*autoscalingv2.HorizontalPodAutoscaler); got.Spec.MaxReplicas != 9 || got.Name != "b" {
		t.Errorf("%+v", got)
	}
	a = &admission.Attributes{Requested: scales, Stored: scales, Object: &autoscalingv1.Scale{}}
	if err := v.ReplaceTree(t.Context(), a, map[string]any{"spec": map[string]any{"replicas": int64(5)}}, scales); err != nil ||
		a.Object.(*autoscalingv1.Scale).Spec.Replicas != 5 {
		t.Errorf("%+v %v", a.Object, err)
	}
	if err := v.ReplaceTree(t.Context(), a, map[string]any{"spec": "x"}, scales); err == nil {
		t.Error("a document of another form was accepted")
	}
}

// TestOpenKind opens the same kind twice: the second time it is found in the cache of kinds.
func TestOpenKind(t *testing.T) {
	v := newVersions(t)
	for range 2 {
		served, done, err := v.OpenKind(t.Context(), deployments.Kind)
		if err != nil || served == nil || served.GVR != deployments.Resource {
			t.Fatal(served, err)
		}
		done()
	}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "example.com", Version: "v1", Kind: "Thing"}, {Group: "apps", Version: "v1", Kind: "Pod"},
		{Group: "authorization.k8s.io", Version: "v1", Kind: "SubjectAccessReview"}, // has no objects
	} {
		if served, _, err := v.OpenKind(t.Context(), kind); served != nil || err != nil {
			t.Errorf("%s: %v %v", kind, served, err)
		}
	}
}
