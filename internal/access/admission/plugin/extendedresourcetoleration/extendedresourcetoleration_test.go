package extendedresourcetoleration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
)

func requests(names ...corev1.ResourceName) []corev1.Container {
	list := corev1.ResourceList{}
	for _, name := range names {
		list[name] = resource.MustParse("1")
	}
	return []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list}}}
}

func TestTolerations(t *testing.T) {
	exists := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	}
	timed := exists("a.io/x")
	timed.TolerationSeconds = ptr.To[int64](5)
	equal := corev1.Toleration{Key: "a.io/x", Operator: corev1.TolerationOpEqual, Effect: corev1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want []corev1.Toleration
	}{
		"native resources": {corev1.PodSpec{Containers: requests(
			"cpu", "hugepages-2Mi", "example.kubernetes.io/x", "requests.a.io/x")}, nil},
		"extended, of all containers": {
			corev1.PodSpec{Containers: requests("c.io/x", "a.io/x"), InitContainers: requests("b.io/x", "a.io/x")},
			[]corev1.Toleration{exists("a.io/x"), exists("b.io/x"), exists("c.io/x")},
		},
		"tolerated already": {
			corev1.PodSpec{Containers: requests("a.io/x"), Tolerations: []corev1.Toleration{exists("a.io/x"), exists("o")}},
			[]corev1.Toleration{exists("a.io/x"), exists("o")},
		},
		"tolerated for a time": {
			corev1.PodSpec{Containers: requests("a.io/x"), Tolerations: []corev1.Toleration{timed, exists("o")}},
			[]corev1.Toleration{exists("a.io/x"), exists("o")},
		},
		"tolerated in another way": {
			corev1.PodSpec{Containers: requests("a.io/x"), Tolerations: []corev1.Toleration{equal}},
			[]corev1.Toleration{equal, exists("a.io/x")},
		},
		"limits alone": {corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Limits: requests("a.io/x")[0].Resources.Requests}}}}, nil},
	} {
		pod := &corev1.Pod{Spec: c.spec}
		status := admissiontest.Change(pods, &corev1.Pod{Spec: *c.spec.DeepCopy()}, pod)
		status.Subresource = "status"
		if err := Plugin().Mutate(t.Context(), status); err != nil {
			t.Fatal(err)
		}
		if got := status.Object.(*corev1.Pod).Spec.Tolerations; len(got) != len(c.spec.Tolerations) {
			t.Errorf("%s: a subresource got %v", name, got)
		}
		for _, a := range []*admission.Attributes{admissiontest.Creation(pods, pod), admissiontest.Change(pods, pod, pod)} {
			if err := Plugin().Mutate(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			if got := pod.Spec.Tolerations; fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	}
}
