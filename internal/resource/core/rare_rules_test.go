package core

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// ended and running are the status of a container.
func ended(name string, code int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
}

func running(name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

// TestRestartsInTheStatus checks which containers may run again after they have ended, as kube-apiserver 1.37.2 decides it.
func TestRestartsInTheStatus(t *testing.T) {
	always, never, onFailure := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure
	on42 := []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	all := slices.Clone(on42)
	all[0].Action = corev1.ContainerRestartRuleActionRestartAllContainers
	older := NewPodGates(features.Gates{})
	older.rules.noRestartRules = true
	for name, c := range map[string]struct {
		pod       corev1.RestartPolicy
		container corev1.Container
		code      int32
		gates     *PodGates
		refused   bool
	}{
		"the pod always restarts":        {pod: corev1.RestartPolicyAlways},
		"the pod never does":             {pod: corev1.RestartPolicyNever, code: 1, refused: true},
		"the container always does":      {pod: corev1.RestartPolicyNever, container: corev1.Container{RestartPolicy: &always}},
		"the container never does":       {pod: corev1.RestartPolicyAlways, container: corev1.Container{RestartPolicy: &never}, refused: true},
		"it failed":                      {pod: corev1.RestartPolicyNever, container: corev1.Container{RestartPolicy: &onFailure}, code: 1},
		"it did not fail":                {pod: corev1.RestartPolicyAlways, container: corev1.Container{RestartPolicy: &onFailure}, refused: true},
		"a rule matches":                 {pod: corev1.RestartPolicyNever, container: corev1.Container{RestartPolicy: &never, RestartPolicyRules: on42}, code: 42},
		"no rule matches":                {pod: corev1.RestartPolicyNever, container: corev1.Container{RestartPolicy: &never, RestartPolicyRules: on42}, code: 43, refused: true},
		"all containers may restart":     {pod: corev1.RestartPolicyNever, container: corev1.Container{RestartPolicy: &never, RestartPolicyRules: all}, code: 1},
		"without the gate, it failed":    {pod: corev1.RestartPolicyOnFailure, code: 1, gates: &older},
		"without the gate, it succeeded": {pod: corev1.RestartPolicyOnFailure, gates: &older, refused: true},
	} {
		gates := c.gates
		if gates == nil {
			gates = &defaultGates
		}
		c.container.Name = "a"
		old := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: c.pod, Containers: []corev1.Container{{Name: "b"}, c.container}}}
		old.Status.ContainerStatuses = []corev1.ContainerStatus{running("b"), ended("a", c.code)}
		p := old.DeepCopy()
		p.Status.ContainerStatuses = []corev1.ContainerStatus{running("a"), running("b")}
		var want []string
		if c.refused { // the index is that of the old list
			want = []string{"status.containerStatuses[1].state: Forbidden: may not be transitioned to non-terminated state"}
		}
		if got := texts(gates.validatePodStatusUpdate(p, old)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}

	old := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways}}
	old.Status.ContainerStatuses = []corev1.ContainerStatus{ended("unknown", 0)}
	old.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{ended("debug", 0)}
	p := old.DeepCopy()
	p.Status.ContainerStatuses[0], p.Status.EphemeralContainerStatuses[0] = running("unknown"), running("debug")
	if got, want := texts(defaultGates.validatePodStatusUpdate(p, old)), []string{
		"status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
		"status.ephemeralContainerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
	}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestObservedGenerationsAreKept(t *testing.T) {
	old := &corev1.Pod{}
	old.Status.ObservedGeneration = 3
	old.Status.Conditions = []corev1.PodCondition{{Type: "Ready", ObservedGeneration: 2}, {Type: "Ready", ObservedGeneration: 3}}
	p := &corev1.Pod{}
	p.Status.Conditions = []corev1.PodCondition{{Type: "Other"}, {Type: "Ready"}, {Type: "Ready", ObservedGeneration: 4}, {Type: "Ready"}}
	preparePodStatusUpdate(p, old)
	var got []int64
	for _, c := range p.Status.Conditions {
		got = append(got, c.ObservedGeneration)
	}
	if want := []int64{0, 2, 4, 0}; p.Status.ObservedGeneration != 3 || !slices.Equal(got, want) {
		t.Errorf("%d, %v, want 3, %v", p.Status.ObservedGeneration, got, want)
	}
}

// TestClaimOfAnEphemeralVolume: a volume cannot be the claim that is made for another volume of the same pod.
func TestClaimOfAnEphemeralVolume(t *testing.T) {
	claim := func(name string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "p-a"},
		}}
	}
	template := &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
	}}
	volumes := []corev1.Volume{
		{Name: "a", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: template}}}, claim("b"),
	}
	valid, errs := validateVolumes(volumes, podRules{}, "p", field.NewPath("v"))
	want := []string{`v[1].persistentVolumeClaim.claimName: Invalid value: "p-a": must not reference a PVC that gets created for an ephemeral volume`}
	if got := texts(errs); !slices.Equal(got, want) || len(valid) != 2 {
		t.Errorf("%q, %d can be mounted", got, len(valid))
	}
	if _, errs := validateVolumes(volumes, podRules{}, "", field.NewPath("v")); len(errs) > 0 {
		t.Errorf("a template: %v", errs)
	}
}

// TestClassOfAClaim checks when a claim may get a storage class, and which requests of a bound claim may change.
func TestClassOfAClaim(t *testing.T) {
	const annotation = storageClassAnnotation
	claim := func(volume, class string, annotations map[string]string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "n", Annotations: annotations}}
		c.Spec.AccessModes, c.Spec.VolumeName = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, volume
		c.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse("1Gi")}
		if class != "" {
			c.Spec.StorageClassName = &class
		}
		return c
	}
	fast, empty := map[string]string{annotation: "fast"}, map[string]string{annotation: ""}
	for name, c := range map[string]struct {
		is, was *corev1.PersistentVolumeClaim
		refused int
	}{
		"a bound claim without one":    {claim("v", "fast", nil), claim("v", "", nil), 0},
		"that of the annotation":       {claim("v", "fast", fast), claim("v", "", fast), 0},
		"the annotation goes":          {claim("v", "fast", nil), claim("v", "", fast), 0},
		"another than the annotation":  {claim("v", "slow", fast), claim("v", "", fast), 1},
		"the annotation is empty":      {claim("v", "fast", empty), claim("v", "", empty), 1},
		"only the annotation goes":     {claim("v", "", nil), claim("v", "", fast), 1},
		"the class changes":            {claim("v", "slow", nil), claim("v", "fast", nil), 1},
		"the annotation becomes other": {claim("v", "fast", map[string]string{annotation: "x"}), claim("v", "", fast), 1},
	} {
		if errs := validatePersistentVolumeClaimUpdate(c.is, c.was); len(errs) != c.refused {
			t.Errorf("%s: %q, want %d errors", name, texts(errs), c.refused)
		}
	}
	bound := claim("v", "", nil)
	bound.Status.Phase = corev1.ClaimBound
	for name, refused := range map[corev1.ResourceName]bool{corev1.ResourceStorage: false, "example.com/iops": true} {
		is := bound.DeepCopy()
		is.Spec.Resources.Requests[name] = resource.MustParse("2Gi")
		if errs := validatePersistentVolumeClaimUpdate(is, bound); (len(errs) > 0) != refused {
			t.Errorf("another request of %s: %q", name, texts(errs))
		}
	}
}

func TestSmallRules(t *testing.T) {
	if errs := validateSeccomp(&corev1.SeccompProfile{
		Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new(""),
	}, field.NewPath("s")); len(errs) > 0 {
		t.Errorf("an empty profile: %v", errs)
	}
	s := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "."}}
	s.Name, s.Namespace, s.Spec.SessionAffinity = "s", "n", corev1.ServiceAffinityNone
	if got := texts(AddressRules{}.validateService(s, nil)); !slices.Contains(got, "spec.externalName: Required value") {
		t.Errorf("an external name of a dot: %q", got)
	}
}

// TestAffinityOfAGatedPod: its node affinity may go, but not other parts of its affinity with it.
func TestAffinityOfAGatedPod(t *testing.T) {
	node := &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight:     1,
		Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: "Exists"}}},
	}}}
	pods := &corev1.PodAffinity{}
	for name, c := range map[string]struct {
		is, was *corev1.Affinity
		same    bool
	}{
		"only of nodes":           {nil, &corev1.Affinity{NodeAffinity: node}, true},
		"also of pods":            {nil, &corev1.Affinity{NodeAffinity: node, PodAffinity: pods}, false},
		"one of nodes is added":   {&corev1.Affinity{NodeAffinity: node}, nil, true},
		"an empty one is added":   {&corev1.Affinity{}, nil, false},
		"one of pods is added":    {&corev1.Affinity{NodeAffinity: node, PodAffinity: pods}, nil, false},
		"that of nodes goes only": {&corev1.Affinity{PodAffinity: pods}, &corev1.Affinity{NodeAffinity: node, PodAffinity: pods}, true},
	} {
		spec, old := &corev1.PodSpec{Affinity: c.is}, &corev1.PodSpec{Affinity: c.was}
		if errs := validateGatedPodScheduling(spec, old, field.NewPath("spec")); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
		if same := equality.Semantic.DeepEqual(spec, old); same != c.same {
			t.Errorf("%s: what may not change is the same: %v, want %v", name, same, c.same)
		}
	}
}

func TestMessageOfAResource(t *testing.T) {
	for _, message := range []string{"", "x", strings.Repeat("x", 1025)} {
		list := []corev1.ResourceStatus{{Name: "r", Resources: []corev1.ResourceHealth{
			{ResourceID: "1", Health: corev1.ResourceHealthStatusHealthy, Message: &message},
		}}}
		if errs := validateAllocated(list, nil, nil, field.NewPath("s")); (len(errs) > 0) != (len(message) != 1) {
			t.Errorf("a message of %d bytes: %q", len(message), texts(errs))
		}
	}
}

func TestKeysOfTerms(t *testing.T) {
	term := &corev1.PodAffinityTerm{
		LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"a", "b"}, MismatchLabelKeys: []string{"b"},
	}
	want := []string{`t.matchLabelKeys[1]: Invalid value: "b": exists in both matchLabelKeys and mismatchLabelKeys`}
	if got := texts(validateTermKeys(term, field.NewPath("t"))); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWindowsUsers(t *testing.T) {
	const format = "runAsUserName's Domain doesn't match the NetBios nor the DNS format"
	for name, want := range map[string][]string{
		`u`:                               nil,
		`fifteen_chars_x\u`:               nil,
		`sixteen_chars_xx\u`:              {format},
		`a-domain.of-more.than-fifteen\u`: nil,
		`\u`:                              {format},
		`a\b\c`:                           {"runAsUserName cannot contain more than one backslash"},
		"a\n*":                            {"runAsUserName cannot contain control characters"},
		strings.Repeat("a", 256) + `\u`:   {"runAsUserName's Domain length must be under 256 characters", format},
	} {
		if got := windowsUserProblems(name); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestAppArmorProfiles(t *testing.T) {
	for name, want := range map[string][]string{
		"a":  nil,
		"":   {"s.localhostProfile: Required value: must be set when AppArmor type is Localhost"},
		"  ": {`s.localhostProfile: Invalid value: "  ": must not be padded with whitespace`},
	} {
		a := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
		if got := texts(validateAppArmor(a, field.NewPath("s"))); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestWhyNotNow checks the four reasons of a budget that allows no disruption.
func TestWhyNotNow(t *testing.T) {
	const not = "The disruption budget b does not allow evicting pods currently"
	for want, c := range map[string]struct {
		reason, message string
		healthy         int32
	}{
		not + " because it failed sync: M": {policyv1.SyncFailedReason, "M", 1},
		not + " (R): M":                    {"R", "M", 3},
		not:                                {"R", "", 3},
		"The disruption budget b needs 2 healthy pods and has 2 currently": {"R", "M", 2},
	} {
		b := &policyv1.PodDisruptionBudget{}
		b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy = "b", 2, c.healthy
		b.Status.Conditions = []metav1.Condition{{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: c.reason, Message: c.message,
		}}
		if got := whyNotNow(b); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	e := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true)}}
	e.Name = "p"
	_, err := evict(t.Context(), nil, registry.CreateRequest{Body: e, Name: "p"})
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) || status.Status().Code != 422 {
		t.Errorf("an eviction that ignores errors of the store: %v", err)
	}
}

// TestPercentages: a number that no int has is more than 100 %, and not no percentage.
func TestPercentages(t *testing.T) {
	for text, want := range map[string]int{"50%": 50, "0%": 0, "99999999999999999999%": math.MaxInt} {
		if got, ok := percent(intstr.FromString(text)); !ok || got != want {
			t.Errorf("%s: %d %v, want %d", text, got, ok, want)
		}
	}
	if _, ok := percent(intstr.FromString("5")); ok {
		t.Error("a number without a sign is a percentage")
	}
}

// TestValuesOfTaints: a value that is too long and has a wrong character has one error with both texts.
func TestValuesOfTaints(t *testing.T) {
	value := strings.Repeat("x", 63) + "-"
	taint := validateTaints([]corev1.Taint{{Key: "a", Value: value, Effect: corev1.TaintEffectNoSchedule}}, field.NewPath("t"))
	toleration := validateToleration(&corev1.Toleration{Key: "a", Value: value}, false, field.NewPath("t"))
	for _, errs := range []field.ErrorList{taint, toleration} {
		if len(errs) != 1 || strings.Count(errs[0].Error(), ";a valid label") != 1 {
			t.Errorf("%q", texts(errs))
		}
	}
}

func TestDeprecatedNodeLabels(t *testing.T) {
	for label, want := range map[string]string{
		"node-role.kubernetes.io/master": `use "node-role.kubernetes.io/control-plane" instead`, "kubernetes.io/os": "",
	} {
		if got := DeprecatedNodeLabel(label); got != want {
			t.Errorf("%s: %q, want %q", label, got, want)
		}
	}
}
