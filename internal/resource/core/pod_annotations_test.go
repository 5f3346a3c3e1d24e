package core

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

const (
	seccompPod       = "seccomp.security.alpha.kubernetes.io/pod"
	seccompContainer = "container.seccomp.security.alpha.kubernetes.io/"
	deletionCost     = "controller.kubernetes.io/pod-deletion-cost"
	alphaTolerations = "scheduler.alpha.kubernetes.io/tolerations"
)

// annotatedPod returns a pod with defaults and these annotations.
func annotatedPod(annotations map[string]string, change func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", Annotations: annotations},
		Spec: corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if change != nil {
		change(&p.Spec)
	}
	defaultPod(p, &defaultGates)
	return p
}

func checkErrors(t *testing.T, name string, errs field.ErrorList, want ...string) {
	t.Helper()
	if got := texts(errs); !slices.Equal(got, want) {
		t.Errorf("%s: refused for\n  %s\nwant\n  %s", name, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestPodAnnotations has values of single annotations with the errors of kube-apiserver 1.37.2.
func TestPodAnnotations(t *testing.T) {
	const key = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric " +
		"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
	const notJSON = `metadata.annotations: Invalid value: "` + alphaTolerations + `": `
	const toleration = "metadata.annotations." + alphaTolerations
	cost := func(value string) string {
		return "metadata.annotations[" + deletionCost + `]: Invalid value: "` + value + `": must be a 32bit integer`
	}
	for _, c := range []struct {
		name, value string
		want        []string
	}{
		{deletionCost, "0", nil},
		{deletionCost, "-1", nil},
		{deletionCost, "-01", nil},
		{deletionCost, "-2147483648", nil},
		{deletionCost, "", []string{cost("")}},
		{deletionCost, "a", []string{cost("a")}},
		{deletionCost, "-", []string{cost("-")}},
		{deletionCost, "+1", []string{cost("+1")}},
		{deletionCost, "01", []string{cost("01")}},
		{deletionCost, " 1", []string{cost(" 1")}},
		{deletionCost, "1.5", []string{cost("1.5")}},
		{deletionCost, "2147483648", []string{cost("2147483648")}},

		{alphaTolerations, "", nil},
		{alphaTolerations, "[]", nil},
		{alphaTolerations, "null", nil},
		{alphaTolerations, "x", []string{notJSON + "invalid character 'x' looking for beginning of value"}},
		{alphaTolerations, "{}", []string{notJSON + "json: cannot unmarshal object into Go value of type []core.Toleration"}},
		{alphaTolerations, `[{"key":1}]`,
			[]string{notJSON + "json: cannot unmarshal number into Go struct field Toleration.Key of type string"}},
		{alphaTolerations, `[{"operator":3}]`,
			[]string{notJSON + "json: cannot unmarshal number into Go struct field Toleration.Operator of type core.TolerationOperator"}},
		{alphaTolerations, `[{"tolerationSeconds":"x"}]`,
			[]string{notJSON + "json: cannot unmarshal string into Go struct field Toleration.TolerationSeconds of type int64"}},
		{alphaTolerations, `[{"KEY":"a b"}]`, []string{toleration + `[0].key: Invalid value: "a b": ` + key}},
		{alphaTolerations, `[{"key":"a","operator":"Gt","value":"1"}]`, []string{toleration +
			`[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"`}},
		{alphaTolerations, `[{"operator":"Equal"},{"key":"a","operator":"Exists","value":"v","effect":"X"}]`, []string{
			toleration + `[0].operator: Invalid value: "Equal": operator must be Exists when ` + "`key` is empty, " +
				`which means "match all values and all keys"`,
			toleration + `[1].operator: Invalid value: "v": value must be empty when ` + "`operator` is 'Exists'",
			toleration + `[1].effect: Unsupported value: "X": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`}},
		{alphaTolerations, `[{"key":"a","tolerationSeconds":5}]`, []string{
			toleration + `[0].effect: Invalid value: "": effect must be 'NoExecute' when ` + "`tolerationSeconds` is set"}},

		{seccompPod, "unconfined", nil},
		{seccompPod, "runtime/default", nil},
		{seccompPod, "docker/default", nil},
		{seccompPod, "localhost/", nil},
		{seccompPod, "localhost/a", nil},
		{seccompPod, "", []string{"metadata.annotations." + seccompPod + `: Invalid value: "": must be a valid seccomp profile`}},
		{seccompPod, "localhost//a", []string{"metadata.annotations." + seccompPod + `: Invalid value: "/a": must be a relative path`}},
		{seccompPod, "localhost//../a", []string{
			"metadata.annotations." + seccompPod + `: Invalid value: "/../a": must be a relative path`,
			"metadata.annotations." + seccompPod + `: Invalid value: "/../a": must not contain '..'`}},
		{seccompContainer + "z", "localhost/../a",
			[]string{"metadata.annotations." + seccompContainer + `z: Invalid value: "../a": must not contain '..'`}},
		{seccompContainer + "c", "bad",
			[]string{"metadata.annotations." + seccompContainer + `c: Invalid value: "bad": must be a valid seccomp profile`}},
	} {
		checkErrors(t, c.name+"="+c.value,
			validatePod(annotatedPod(map[string]string{c.name: c.value}, nil), defaultGates.rules), c.want...)
	}
}

// wrongAnnotations are wrong values of all annotations of pods that are validated.
var wrongAnnotations = map[string]string{
	corev1.MirrorPodAnnotationKey: "m", alphaTolerations: "x", deletionCost: "x", seccompPod: "x", seccompContainer + "c": "y",
	appArmorPrefix + "z": "q",
}

// wrongAnnotationErrors returns the errors of wrongAnnotations in the order of kube-apiserver.
func wrongAnnotationErrors(path string) []string {
	return []string{
		path + `[kubernetes.io/config.mirror]: Invalid value: "m": must set spec.nodeName if mirror pod annotation is set`,
		path + `: Invalid value: "` + alphaTolerations + `": invalid character 'x' looking for beginning of value`,
		path + "[" + deletionCost + `]: Invalid value: "x": must be a 32bit integer`,
		path + "." + seccompPod + `: Invalid value: "x": must be a valid seccomp profile`,
		path + "." + seccompContainer + `c: Invalid value: "y": must be a valid seccomp profile`,
		path + "[" + appArmorPrefix + `z]: Invalid value: "z": container not found`,
		path + "[" + appArmorPrefix + `z]: Invalid value: "q": invalid AppArmor profile name: "q"`,
	}
}

func unconfined(s *corev1.PodSpec) {
	s.Containers[0].SecurityContext = &corev1.SecurityContext{
		SeccompProfile:  &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined},
		AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
	}
}

// TestPodAnnotationOrder checks the place of these errors among others: annotations are validated before the spec, and
// compared with it after it.
func TestPodAnnotationOrder(t *testing.T) {
	const seccompMatch = "spec.containers[0].securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match"
	wrong := wrongAnnotationErrors("metadata.annotations")
	p := annotatedPod(wrongAnnotations, func(s *corev1.PodSpec) {
		unconfined(s)
		s.RestartPolicy = "X"
		s.ResourceClaims = []corev1.PodResourceClaim{{}}
	})
	checkErrors(t, "create", validatePod(p, defaultGates.rules), append(slices.Clone(wrong),
		"[]: Forbidden: static pods do not support resource claims",
		`spec.restartPolicy: Unsupported value: "X": supported values: "Always", "OnFailure", "Never"`, seccompMatch)...)

	both := map[string]string{appArmorPrefix + "c": "runtime/default", seccompContainer + "c": "runtime/default"}
	p = annotatedPod(both, func(s *corev1.PodSpec) {
		unconfined(s)
		s.NodeName, s.SchedulingGates = "n", []corev1.PodSchedulingGate{{Name: "a"}}
	})
	checkErrors(t, "match", validatePod(p, defaultGates.rules),
		"spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared", seccompMatch,
		"spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match")

	old, changed := annotatedPod(nil, nil), annotatedPod(map[string]string{deletionCost: "x", appArmorPrefix + "c": "runtime/default"},
		func(s *corev1.PodSpec) { s.Containers[0].Image = "" })
	const mayNotAdd = "metadata.annotations[" + appArmorPrefix + "c]: Forbidden: may not add AppArmor annotations"
	errs := validatePodUpdate(changed, old, defaultGates.rules.keeping(&old.Spec, nil))
	checkErrors(t, "update", errs[:2], wrongCost("metadata.annotations"), "spec.containers[0].image: Required value")
	if errs[2].Error() != mayNotAdd {
		t.Errorf("update: %v", errs[2])
	}
	checkErrors(t, "status", defaultGates.validatePodStatusUpdate(changed, old), mayNotAdd, wrongCost("metadata.annotations"))

	changed = annotatedPod(maps.Clone(wrongAnnotations), nil)
	delete(changed.Annotations, corev1.MirrorPodAnnotationKey)
	checkErrors(t, "all in the status", defaultGates.validatePodStatusUpdate(changed, old), append(
		[]string{"metadata.annotations[" + appArmorPrefix + "z]: Forbidden: may not add AppArmor annotations"}, wrong[1:]...)...)
}

func wrongCost(path string) string {
	return path + "[" + deletionCost + `]: Invalid value: "x": must be a 32bit integer`
}

// TestStaticPods checks that nothing but the kind of the pod is reported for changes that mirror pods do not support.
func TestStaticPods(t *testing.T) {
	p := annotatedPod(map[string]string{corev1.MirrorPodAnnotationKey: "m", deletionCost: "x"}, nil)
	checkErrors(t, "resize", defaultGates.validateResize(p, p), "[]: Forbidden: static pods cannot be resized")
	checkErrors(t, "ephemeral containers", validateEphemeralContainersUpdate(p, p, podRules{}),
		"[]: Forbidden: static pods do not support ephemeral containers")
	p = annotatedPod(map[string]string{deletionCost: "x"}, nil)
	checkErrors(t, "resize of a pod", defaultGates.validateResize(p, p), []string(nil)...)
	p.Annotations = map[string]string{seccompPod: "x"}
	const wrong = "metadata.annotations." + seccompPod + `: Invalid value: "x": must be a valid seccomp profile`
	checkErrors(t, "resize of a pod that is older than the rule", defaultGates.validateResize(p, p), wrong)
	checkErrors(t, "ephemeral containers of such a pod", validateEphemeralContainersUpdate(p, p, podRules{}), wrong)
}

// TestSeccompMatch compares annotations with profiles.
func TestSeccompMatch(t *testing.T) {
	const typeDiffers, profileDiffers = "type: Forbidden: seccomp type in annotation and field must match",
		"localhostProfile: Forbidden: seccomp profile in annotation and field must match"
	for _, c := range []struct {
		annotation string
		profile    corev1.SeccompProfile
		want       string
	}{
		{"unconfined", corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}, ""},
		{"runtime/default", corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}, typeDiffers},
		{"runtime/default", corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}, ""},
		{"docker/default", corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}, ""},
		{"localhost/a", corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}, typeDiffers},
		{"localhost/a", corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("a")}, ""},
		{"localhost/b", corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("a")}, profileDiffers},
		{"unconfined", corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("a")}, typeDiffers},
	} {
		var pod, container []string
		if c.want != "" {
			pod = []string{"spec.securityContext.seccompProfile." + c.want}
			container = []string{"spec.initContainers[0].securityContext.seccompProfile." + c.want}
		}
		p := annotatedPod(map[string]string{seccompPod: c.annotation}, func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &c.profile}
		})
		checkErrors(t, "pod "+c.annotation, validatePod(p, defaultGates.rules), pod...)
		p = annotatedPod(map[string]string{seccompContainer + "d": c.annotation}, func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "d", Image: "i",
				SecurityContext: &corev1.SecurityContext{SeccompProfile: &c.profile}}}
		})
		checkErrors(t, "container "+c.annotation, validatePod(p, defaultGates.rules), container...)
	}
}

// TestTemplateAnnotations validates the annotations of a pod template, of a new one and of a changed one.
func TestTemplateAnnotations(t *testing.T) {
	template := func(annotations map[string]string) *corev1.PodTemplateSpec {
		out := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		unconfined(&out.Spec)
		DefaultPodTemplate(out)
		return out
	}
	path := field.NewPath("template")
	const match = "template.spec.containers[0].securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match"
	wrong, old := template(wrongAnnotations), template(nil)
	for _, before := range []*corev1.PodTemplateSpec{nil, old} {
		checkErrors(t, "all", defaultGates.ValidateTemplate(wrong, before, path),
			append(wrongAnnotationErrors("template.annotations"), match)...)
	}
	both := template(map[string]string{appArmorPrefix + "c": "runtime/default", seccompContainer + "c": "runtime/default"})
	both.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
	errs := texts(defaultGates.ValidateTemplate(both, old, path))
	want := []string{match,
		"template.spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match",
		"template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"}
	if len(errs) < len(want) || !slices.Equal(errs[len(errs)-len(want):], want) {
		t.Errorf("refused for %q, want %q at the end", errs, want)
	}
}

// TestInvalidDeletionCost keeps a cost that is older than the rule, of a pod and of a template. The gate switches the rule
// off.
func TestInvalidDeletionCost(t *testing.T) {
	invalid, valid := map[string]string{deletionCost: "x"}, map[string]string{deletionCost: "1"}
	p := annotatedPod(invalid, nil)
	update := func(old map[string]string) field.ErrorList {
		before := annotatedPod(old, nil)
		return validatePodUpdate(p, before, defaultGates.rules.keeping(&before.Spec, before.Annotations))
	}
	checkErrors(t, "was valid", update(valid), wrongCost("metadata.annotations"))
	checkErrors(t, "was absent", update(nil), wrongCost("metadata.annotations"))
	checkErrors(t, "was invalid", update(map[string]string{deletionCost: "y"}))
	checkErrors(t, "status, was invalid", defaultGates.validatePodStatusUpdate(p, annotatedPod(invalid, nil)))

	template := &corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
	checkErrors(t, "template", defaultGates.ValidateTemplate(template, nil, field.NewPath("t")), wrongCost("t.annotations"))
	checkErrors(t, "template, was invalid", defaultGates.ValidateTemplate(template, template, field.NewPath("t")))

	off, err := features.Parse([]string{"PodDeletionCost=false"}, features.Gates{}.Release())
	if err != nil {
		t.Fatal(err)
	}
	checkErrors(t, "without the gate", validatePod(p, NewPodGates(off).rules))
}

// TestNodeAnnotations has values of annotations of nodes with the errors of kube-apiserver 1.37.2.
func TestNodeAnnotations(t *testing.T) {
	const notTaints = `metadata.annotations: Invalid value: "` + taintsAnnotation + `": `
	const notAvoided = `metadata.annotations.AvoidPods: Invalid value: "` + avoidPodsAnnotation + `": `
	for _, c := range []struct{ name, value, want string }{
		{taintsAnnotation, "", ""},
		{taintsAnnotation, "x", notTaints + "invalid character 'x' looking for beginning of value"},
		{taintsAnnotation, "{}", notTaints + "json: cannot unmarshal object into Go value of type []core.Taint"},
		{taintsAnnotation, `[{"key":1}]`, notTaints + "json: cannot unmarshal number into Go struct field Taint.Key of type string"},
		{taintsAnnotation, `[{"effect":3}]`,
			notTaints + "json: cannot unmarshal number into Go struct field Taint.Effect of type core.TaintEffect"},
		{taintsAnnotation, `[{"timeAdded":"x"}]`,
			notTaints + `parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"`},
		{taintsAnnotation, `[{"key":"a","effect":"NoSchedule"},{"key":"a","effect":"NoSchedule"}]`,
			"metadata.annotations." + taintsAnnotation + `[1]: Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule",` +
				`"TimeAdded":null}: taints must be unique by key and effect pair`},
		{avoidPodsAnnotation, "x", notAvoided + "invalid character 'x' looking for beginning of value"},
		{avoidPodsAnnotation, "[]", notAvoided + "json: cannot unmarshal array into Go value of type v1.AvoidPods"},
		{avoidPodsAnnotation, `{"preferAvoidPods":[{}]}`,
			"metadata.annotations." + avoidPodsAnnotation + "[0].PodSignature: Required value"},
	} {
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{c.name: c.value}}}
		checkErrors(t, c.name+"="+c.value, AddressRules{}.validateNode(n), want...)
	}
}
