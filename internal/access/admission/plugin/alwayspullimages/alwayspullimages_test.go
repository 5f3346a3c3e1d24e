package alwayspullimages

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/object/apierr"
)

func samplePod(images ...string) *corev1.Pod {
	common := func(i int) corev1.EphemeralContainerCommon {
		return corev1.EphemeralContainerCommon{Image: images[i], ImagePullPolicy: corev1.PullNever}
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		InitContainers:      []corev1.Container{corev1.Container(common(0))},
		Containers:          []corev1.Container{corev1.Container(common(1))},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: common(2)}},
		Volumes: []corev1.Volume{{Name: "v"}, {Name: "i", VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: "v", PullPolicy: corev1.PullIfNotPresent},
		}}},
	}}
}

func policies(pod *corev1.Pod) string {
	s := &pod.Spec
	return fmt.Sprintf("%s %s %s %s", s.InitContainers[0].ImagePullPolicy, s.Containers[0].ImagePullPolicy,
		s.EphemeralContainers[0].ImagePullPolicy, s.Volumes[1].Image.PullPolicy)
}

func TestPullPolicies(t *testing.T) {
	const untouched, always = "Never Never Never IfNotPresent", "Always Always Always Always"
	created := admissiontest.Creation(pods, samplePod("a", "b", "c"))
	status := admissiontest.Change(pods, samplePod("a", "b", "z"), samplePod("a", "b", "c"))
	status.Subresource = "ephemeralcontainers"
	for name, c := range map[string]struct {
		a    *admission.Attributes
		want string
	}{
		"create":       {created, always},
		"same images":  {admissiontest.Change(pods, samplePod("a", "b", "c"), samplePod("c", "a", "b")), untouched},
		"new image":    {admissiontest.Change(pods, samplePod("a", "b", "d"), samplePod("a", "b", "c")), always},
		"subresource":  {status, untouched},
		"another kind": {admissiontest.Creation(corev1.Resource("podtemplates"), samplePod("a", "b", "c")), untouched},
	} {
		pod := c.a.Object.(*corev1.Pod)
		before := Plugin().Validate(t.Context(), c.a)
		if (before != nil) != (c.want == always) {
			t.Errorf("%s: validation before the change: %v", name, before)
		}
		if err := Plugin().Mutate(t.Context(), c.a); err != nil {
			t.Fatal(err)
		}
		if got := policies(pod); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if err := Plugin().Validate(t.Context(), c.a); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRefusal(t *testing.T) {
	status := apierr.Status(Plugin().Validate(t.Context(), admissiontest.Creation(pods, samplePod("a", "b", "c"))))
	const forbidden, supported = `pods "p" is forbidden: `, `: supported values: "Always"`
	want := "[" + forbidden + `spec.initContainers[0].imagePullPolicy: Unsupported value: "Never"` + supported + ", " +
		forbidden + `spec.containers[0].imagePullPolicy: Unsupported value: "Never"` + supported + ", " +
		forbidden + `spec.ephemeralContainers[0].imagePullPolicy: Unsupported value: "Never"` + supported + ", " +
		forbidden + `spec.volumes[1].image.pullPolicy: Unsupported value: "IfNotPresent"` + supported + "]"
	if status.Code != 500 || status.Reason != "" || status.Message != want {
		t.Errorf("%d %q %s", status.Code, status.Reason, status.Message)
	}
}
