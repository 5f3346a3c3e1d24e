package scheduling

import (
	"testing"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	k8sfield "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/resource/internal/kindtest"
)

func TestKinds(t *testing.T) {
	// The admission plug-ins Priority and PodGroupProtection set these.
	set := []string{"spec.priority", "metadata.finalizers"}
	kindtest.Run(t, Kinds(features.All()), kindtest.Options{
		SetByOthers: map[string][]string{"podgroups": set, "compositepodgroups": set},
	})
}

func TestKindsHaveGates(t *testing.T) {
	for _, c := range []struct {
		gates []string
		want  []string
	}{
		{nil, []string{"priorityclasses"}},
		{[]string{"GenericWorkload=true"}, []string{"podgroups", "priorityclasses", "workloads"}},
		{
			[]string{"GenericWorkload=true", "TopologyAwareWorkloadScheduling=true", "CompositePodGroup=true"},
			[]string{"compositepodgroups", "podgroups", "priorityclasses", "workloads"},
		},
	} {
		kinds := Kinds(gatesOf(t, c.gates...))
		if len(kinds) != len(c.want) {
			t.Errorf("%v: %d kinds, want %v", c.gates, len(kinds), c.want)
			continue
		}
		for i, k := range kinds {
			if k.Resource != c.want[i] {
				t.Errorf("%v: %s at %d, want %s", c.gates, k.Resource, i, c.want[i])
			}
		}
	}
}

func gatesOf(t *testing.T, values ...string) features.Gates {
	gates, err := features.Parse(values, release.Release{})
	if err != nil {
		t.Fatal(err)
	}
	return gates
}

// TestDisabledFields checks that a field whose gate is off is dropped from new objects, and kept in updates of objects that
// have it.
func TestDisabledFields(t *testing.T) {
	g := newGroupGates(gatesOf(t, "GenericWorkload=true"))
	constraints := &schedulingv1beta1.PodGroupSchedulingConstraints{}
	claims := []schedulingv1beta1.PodGroupResourceClaim{{Name: "a"}}
	full := func() *schedulingv1beta1.WorkloadSpec {
		t := template{
			Name: "t", SchedulingConstraints: constraints, ResourceClaims: claims,
			PreemptionPolicy: ptr.To(schedulingv1beta1.PreemptNever),
		}
		return &schedulingv1beta1.WorkloadSpec{
			PodGroupTemplates: []template{t},
			CompositePodGroupTemplates: []compositeTemplate{{
				Name: "c", PodGroupTemplates: []template{t}, PreemptionPolicy: t.PreemptionPolicy,
				CompositePodGroupTemplates: []compositeTemplate{{Name: "d"}},
			}},
		}
	}
	s := full()
	g.dropFromWorkload(s, &schedulingv1beta1.WorkloadSpec{})
	if bare := s.PodGroupTemplates[0]; bare.SchedulingConstraints != nil || bare.ResourceClaims != nil ||
		bare.PreemptionPolicy != nil || s.CompositePodGroupTemplates != nil {
		t.Errorf("a new workload keeps %+v", s)
	}
	s = full()
	g.dropFromWorkload(s, full())
	inner := s.CompositePodGroupTemplates[0]
	if s.PodGroupTemplates[0].ResourceClaims == nil || inner.PreemptionPolicy == nil ||
		inner.CompositePodGroupTemplates == nil || inner.PodGroupTemplates[0].SchedulingConstraints == nil {
		t.Errorf("an update loses fields: %+v", s)
	}
	p := &podGroup{}
	p.Spec.ResourceClaims, p.Spec.ParentCompositePodGroupName = claims, ptr.To("parent")
	p.Status.ResourceClaimStatuses = []schedulingv1beta1.PodGroupResourceClaimStatus{{Name: "a"}}
	old := p.DeepCopy()
	g.groups.Drop(p, old)
	if g.statuses.Drop(p, old); p.Status.ResourceClaimStatuses == nil || p.Spec.ParentCompositePodGroupName == nil {
		t.Errorf("an update loses fields: %+v", p)
	}
	g.groups.DropNew(p)
	if g.statuses.Drop(p, &podGroup{}); p.Status.ResourceClaimStatuses != nil || p.Spec.ResourceClaims != nil ||
		p.Spec.ParentCompositePodGroupName != nil {
		t.Errorf("a new group keeps %+v", p)
	}
}

// TestDisabledFieldsAreForbidden checks that with gates that are off, only what the old object has is valid.
func TestDisabledFieldsAreForbidden(t *testing.T) {
	g := newGroupGates(gatesOf(t, "GenericWorkload=true"))
	old := &schedulingv1beta1.PodGroupSpec{
		SchedulingPolicy:      schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}},
		DisruptionMode:        &schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}},
		SchedulingConstraints: &schedulingv1beta1.PodGroupSchedulingConstraints{},
		PreemptionPolicy:      ptr.To(schedulingv1beta1.PreemptNever),
	}
	for name, c := range map[string]struct {
		change func(*schedulingv1beta1.PodGroupSpec)
		want   string
	}{
		"same":      {func(*schedulingv1beta1.PodGroupSpec) {}, ""},
		"no limits": {func(s *schedulingv1beta1.PodGroupSpec) { s.SchedulingConstraints = nil }, ""},
		"new limits": {
			func(s *schedulingv1beta1.PodGroupSpec) {
				s.SchedulingConstraints.Topology = []schedulingv1beta1.TopologyConstraint{{Key: "a"}}
			}, "x.schedulingConstraints: Forbidden",
		},
		"other policy": {
			func(s *schedulingv1beta1.PodGroupSpec) { *s.PreemptionPolicy = schedulingv1beta1.PreemptLowerPriority },
			"[x.preemptionPolicy: Forbidden, x.preemptionPolicy: Invalid value: null: field is immutable]",
		},
		"parent": {
			func(s *schedulingv1beta1.PodGroupSpec) { s.ParentCompositePodGroupName = ptr.To("p") },
			"[x.parentCompositePodGroupName: Forbidden, x.parentCompositePodGroupName: Invalid value: null: field is immutable]",
		},
	} {
		s := old.DeepCopy()
		c.change(s)
		v := validator{gates: g}
		v.podGroup(s, old, k8sfield.NewPath("x"))
		got := ""
		if err := v.Errs.ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
