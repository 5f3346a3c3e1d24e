package batch

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// TestChangesOfSuspendedJobs changes templates of suspended jobs: resources, directives of scheduling, and more than these. In
// 1.35 the gates MutablePodResourcesForSuspendedJobs and MutableSchedulingDirectivesForSuspendedJobs are off.
func TestChangesOfSuspendedJobs(t *testing.T) {
	const refused, refusedSpec = "spec.template", "spec.template.spec"
	changes := map[string]func(*corev1.PodTemplateSpec){
		"resources": func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
		},
		"directives": func(p *corev1.PodTemplateSpec) {
			p.Labels, p.Spec.NodeSelector = map[string]string{"a": "b"}, map[string]string{"a": "b"}
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
		},
		"affinity to pods": func(p *corev1.PodTemplateSpec) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
		},
		"image": func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "j" },
	}
	fresh := batchv1.JobStatus{}
	paused := batchv1.JobStatus{StartTime: &metav1.Time{}, Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}}
	active := batchv1.JobStatus{Active: 1}
	for _, c := range []struct {
		change  string
		status  batchv1.JobStatus
		off, on string // the field of the error without and with the gates
		running bool   // the job is not suspended
	}{
		{"resources", fresh, refused, "", false}, {"resources", paused, refused, "", false},
		{"resources", active, refused, refused, false}, {"resources", fresh, refused, refused, true},
		{"directives", fresh, "", "", false}, {"directives", paused, refused, "", false},
		{"directives", active, "", refused, false}, {"directives", fresh, refused, refused, true},
		{"affinity to pods", fresh, refused, refusedSpec, false}, {"image", paused, refused, refusedSpec, false},
	} {
		for minor, want := range map[int]string{35: c.off, 36: c.on} {
			gates, err := features.Parse(nil, release.Of(minor))
			if err != nil {
				t.Fatal(err)
			}
			g := newJobGates(gates)
			old := &batchv1.Job{Status: c.status}
			suspend := !c.running
			old.Spec.Suspend = &suspend
			old.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
			j := old.DeepCopy()
			changes[c.change](&j.Spec.Template)
			var got []string
			for _, err := range g.validateJobTemplateUpdate(j, old, field.NewPath("spec", "template")) {
				got = append(got, err.Field)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("1.%d: %s of a job with the status %+v: %q, want %q", minor, c.change, c.status, got, want)
			}
		}
	}
}
