package priority

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

func class(name string, value int32, policy *corev1.PreemptionPolicy, isDefault bool) *schedulingv1.PriorityClass {
	c := &schedulingv1.PriorityClass{Value: value, PreemptionPolicy: policy, GlobalDefault: isDefault}
	c.Name = name
	return c
}

func TestPriority(t *testing.T) {
	never, preempt := corev1.PreemptNever, corev1.PreemptLowerPriority
	plain := admissiontest.Objects{classes: {class("low", 77, &never, false), class("plain", 5, nil, false)}}
	defaults := admissiontest.Objects{classes: {class("b", 20, &preempt, true), class("a", 10, &never, true)}}
	for name, c := range map[string]struct {
		in         admissiontest.Objects
		sent, want corev1.PodSpec
		err        string
	}{
		"nothing": {in: plain, want: corev1.PodSpec{Priority: ptr.To[int32](0), PreemptionPolicy: &preempt}},
		"lowest default": {
			in: defaults, want: corev1.PodSpec{PriorityClassName: "a", Priority: ptr.To[int32](10), PreemptionPolicy: &never},
		},
		"class": {
			in: plain, sent: corev1.PodSpec{PriorityClassName: "low"},
			want: corev1.PodSpec{PriorityClassName: "low", Priority: ptr.To[int32](77), PreemptionPolicy: &never},
		},
		"class without policy": {
			in: plain, sent: corev1.PodSpec{PriorityClassName: "plain"},
			want: corev1.PodSpec{PriorityClassName: "plain", Priority: ptr.To[int32](5), PreemptionPolicy: &preempt},
		},
		"same values": {
			in: plain, sent: corev1.PodSpec{PriorityClassName: "low", Priority: ptr.To[int32](77), PreemptionPolicy: &never},
			want: corev1.PodSpec{PriorityClassName: "low", Priority: ptr.To[int32](77), PreemptionPolicy: &never},
		},
		"built in": {
			in: plain, sent: corev1.PodSpec{PriorityClassName: "system-node-critical"},
			want: corev1.PodSpec{
				PriorityClassName: "system-node-critical", Priority: ptr.To[int32](2000001000), PreemptionPolicy: &preempt,
			},
		},
		"missing": {
			in: plain, sent: corev1.PodSpec{PriorityClassName: "none"},
			err: `pods "p" is forbidden: no PriorityClass with name none was found`,
		},
		"other priority": {
			in: plain, sent: corev1.PodSpec{Priority: ptr.To[int32](5)},
			err: `pods "p" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority ` +
				`admission controller computed 0 from the given PriorityClass name`,
		},
		"other policy": {
			in: plain, sent: corev1.PodSpec{PriorityClassName: "low", PreemptionPolicy: &preempt},
			err: `pods "p" is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in ` +
				`pod spec; priority admission controller computed Never from the given PriorityClass name`,
		},
	} {
		pod := &corev1.Pod{Spec: c.sent}
		pod.Name = "p"
		err := Plugin(c.in, true).Mutate(t.Context(), admissiontest.Creation(pods, pod))
		if message(err) != c.err {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
		if got := pod.Spec; err == nil && (got.PriorityClassName != c.want.PriorityClassName ||
			!ptr.Equal(got.Priority, c.want.Priority) || !ptr.Equal(got.PreemptionPolicy, c.want.PreemptionPolicy)) {
			t.Errorf("%s: got %s %v %v", name, got.PriorityClassName, *got.Priority, *got.PreemptionPolicy)
		}
	}
}

func TestUpdateKeepsPriority(t *testing.T) {
	old := &corev1.Pod{Spec: corev1.PodSpec{Priority: ptr.To[int32](7), PreemptionPolicy: ptr.To(corev1.PreemptNever)}}
	bare, changed := &corev1.Pod{}, &corev1.Pod{Spec: corev1.PodSpec{Priority: ptr.To[int32](8)}}
	for _, pod := range []*corev1.Pod{bare, changed} {
		if err := Plugin(admissiontest.Objects{}, true).Mutate(t.Context(), admissiontest.Change(pods, pod, old)); err != nil {
			t.Fatal(err)
		}
	}
	if *bare.Spec.Priority != 7 || *bare.Spec.PreemptionPolicy != corev1.PreemptNever || *changed.Spec.Priority != 8 {
		t.Errorf("got %+v and %+v", bare.Spec, changed.Spec)
	}
}

func TestPriorityOfGroups(t *testing.T) {
	never := corev1.PreemptNever
	in := admissiontest.Objects{classes: {class("low", 77, &never, false)}}
	const refused = `podgroups.scheduling.k8s.io "g" is forbidden: `
	for name, c := range map[string]struct {
		sent     schedulingv1beta1.PodGroupSpec
		policies bool
		priority int32
		policy   schedulingv1beta1.PreemptionPolicy // "" is none
		err      string
	}{
		"nothing":    {schedulingv1beta1.PodGroupSpec{}, true, 0, schedulingv1beta1.PreemptLowerPriority, ""},
		"class":      {schedulingv1beta1.PodGroupSpec{PriorityClassName: "low"}, true, 77, schedulingv1beta1.PreemptNever, ""},
		"no policy":  {schedulingv1beta1.PodGroupSpec{PriorityClassName: "low"}, false, 77, "", ""},
		"same value": {schedulingv1beta1.PodGroupSpec{Priority: new(int32)}, false, 0, "", ""},
		"missing": {
			schedulingv1beta1.PodGroupSpec{PriorityClassName: "none"}, true, 0, "",
			refused + "no PriorityClass with name none was found",
		},
		"other priority": {
			schedulingv1beta1.PodGroupSpec{Priority: ptr.To[int32](5)}, true, 0, "",
			refused + "priority set in the pod group (5) must match the priority computed (0) based on the priority class " +
				"set in the spec",
		},
		"other policy": {
			schedulingv1beta1.PodGroupSpec{PreemptionPolicy: ptr.To(schedulingv1beta1.PreemptNever)}, true, 0, "",
			refused + "the string value of PreemptionPolicy (Never) must not be provided in pod group spec; priority " +
				"admission controller computed PreemptLowerPriority from the given PriorityClass name",
		},
	} {
		group := &schedulingv1beta1.PodGroup{Spec: c.sent}
		group.Name = "g"
		err := Plugin(in, c.policies).Mutate(t.Context(), admissiontest.Creation(groups, group))
		if message(err) != c.err {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
		if s := group.Spec; err == nil && (*s.Priority != c.priority || ptr.Deref(s.PreemptionPolicy, "") != c.policy) {
			t.Errorf("%s: got %d and %v", name, *s.Priority, s.PreemptionPolicy)
		}
	}
	composite := &schedulingv1alpha3.CompositePodGroup{}
	composite.Spec.PriorityClassName = "low"
	err := Plugin(in, true).Mutate(t.Context(), admissiontest.Creation(compositeGroups, composite))
	if s := composite.Spec; err != nil || *s.Priority != 77 || *s.PreemptionPolicy != schedulingv1alpha3.PreemptNever {
		t.Errorf("a composite group: %+v, %v", s, err)
	}
}

func TestOneDefault(t *testing.T) {
	in := admissiontest.Objects{classes: []registry.Object{class("first", 1, nil, true)}}
	p := Plugin(in, true)
	const refused = `priorityclasses.scheduling.k8s.io "second" is forbidden: PriorityClass first is already marked as ` +
		`default. Only one default can exist`
	second := class("second", 2, nil, true)
	if err := p.Validate(t.Context(), admissiontest.Creation(classes, second)); message(err) != refused {
		t.Errorf("create: %v", err)
	}
	if err := p.Validate(t.Context(), admissiontest.Change(classes, second, second)); message(err) != refused {
		t.Errorf("update: %v", err)
	}
	if err := p.Validate(
		t.Context(), admissiontest.Change(classes, class("first", 1, nil, true), in[classes][0]),
	); err != nil {
		t.Errorf("update of the default: %v", err)
	}
	if err := p.Validate(t.Context(), admissiontest.Creation(classes, class("third", 1, nil, false))); err != nil {
		t.Errorf("create of another: %v", err)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
