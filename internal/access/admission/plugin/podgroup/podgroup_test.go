package podgroup

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	schedulingv1alpha2 "github.com/keelson-dev/keelson/internal/resource/scheduling/v1alpha2"
)

func TestWorkloadExists(t *testing.T) {
	group := func(workload, template string) *schedulingv1alpha2.PodGroup {
		g := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "g"}}
		g.Spec.PodGroupTemplateRef = &schedulingv1alpha2.PodGroupTemplateReference{
			Workload: &schedulingv1alpha2.WorkloadPodGroupTemplateReference{
				WorkloadName: workload, PodGroupTemplateName: template,
			},
		}
		return g
	}
	workload := &schedulingv1alpha2.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "w"}}
	workload.Spec.PodGroupTemplates = []schedulingv1alpha2.PodGroupTemplate{{Name: "t"}}
	deleted := workload.DeepCopy()
	deleted.Name, deleted.DeletionTimestamp = "gone", new(metav1.Now())
	objects := admissiontest.Objects{workloads: {workload, deleted}}
	for _, c := range []struct {
		group *schedulingv1alpha2.PodGroup
		want  string
	}{
		{&schedulingv1alpha2.PodGroup{}, ""},
		{group("w", "t"), ""},
		{group("x", "t"), `PodGroup rejected: Workload "x" not found`},
		{group("gone", "t"), `PodGroup rejected: Workload "gone" is being deleted`},
		{group("w", "u"), `PodGroup rejected: PodGroupTemplate "u" not found in Workload "w"`},
	} {
		err := admission.NewChain(nil, Plugin(objects)).Validate(t.Context(), admissiontest.Creation(groups, c.group))
		want := ""
		if c.want != "" {
			want = `podgroups.scheduling.k8s.io "g" is forbidden: ` + c.want
		}
		if got := message(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
