package antiaffinity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
)

func TestTopologyOfAntiAffinity(t *testing.T) {
	required := func(keys ...string) *corev1.Affinity {
		var terms []corev1.PodAffinityTerm
		for _, key := range keys {
			terms = append(terms, corev1.PodAffinityTerm{TopologyKey: key})
		}
		return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	}
	const refused = `pods "p" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only ` +
		`key kubernetes.io/hostname is allowed`
	for name, c := range map[string]struct {
		affinity *corev1.Affinity
		want     string
	}{
		"none":           {nil, ""},
		"of other kinds": {&corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}, ""},
		"of a node":      {required("kubernetes.io/hostname"), ""},
		"of a zone":      {required("kubernetes.io/hostname", "zone"), refused},
		"only preferred": {&corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				{Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "zone"}},
			},
		}}, ""},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Affinity: c.affinity}}
		for _, a := range []*admission.Attributes{admissiontest.Creation(pods, pod), admissiontest.Change(pods, pod, pod)} {
			if err := Plugin().Validate(t.Context(), a); message(err) != c.want {
				t.Errorf("%s: %v", name, err)
			}
			a.Subresource = "status"
			if err := Plugin().Validate(t.Context(), a); err != nil {
				t.Errorf("%s: subresource: %v", name, err)
			}
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
