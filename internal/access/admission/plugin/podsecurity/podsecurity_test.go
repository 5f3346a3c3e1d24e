package podsecurity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/pod-security-admission/api"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// counts records each call of Metrics as one line.
type counts []string

func (c *counts) Evaluated(decision, level, version, mode string, r Request) {
	*c = append(
		*c, fmt.Sprintf("%s %s:%s %s %s %s/%s", decision, level, version, mode, r.Operation, r.Resource, r.Subresource),
	)
}

func (c *counts) Exempted(r Request) {
	*c = append(*c, fmt.Sprintf("exempt %s %s/%s", r.Operation, r.Resource, r.Subresource))
}

func (c *counts) Failed(fatal bool, r Request) {
	*c = append(*c, fmt.Sprintf("failed fatal=%v %s %s/%s", fatal, r.Operation, r.Resource, r.Subresource))
}

// outcome has the results of a write.
type outcome struct {
	err         error
	warnings    []string
	annotations map[string]string
	counts      counts
}

// try asks the plug-in about a write.
func try(t *testing.T, c Config, in Objects, a *admission.Attributes) outcome {
	t.Helper()
	var out outcome
	p, err := Plugin(c, Options{Objects: in, Metrics: &out.counts, Version: "v1.36"})
	if err != nil {
		t.Fatal(err)
	}
	record := audit.NewRecord(nil, func() {}, "id", metav1.Now().Time)
	record.Decide(audit.Settings{Level: audit.Metadata})
	var w request.Warnings
	ctx := audit.With(request.WithInfo(t.Context(), &request.Info{Warnings: &w}), record)
	out.err = p.Validate(ctx, a)
	h := http.Header{}
	w.WriteHeaders(h)
	for _, text := range h.Values("Warning") {
		out.warnings = append(out.warnings, strings.TrimSuffix(strings.TrimPrefix(text, `299 - "`), `"`))
	}
	out.annotations = map[string]string{}
	for _, key := range []string{"enforce-policy", "audit-violations", "exempt", "error"} {
		if value, ok := record.Annotation(api.AuditAnnotationPrefix + key); ok {
			out.annotations[key] = value
		}
	}
	return out
}

func defaults(t *testing.T) Config {
	t.Helper()
	c, err := DecodeConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// namespace returns a namespace with Pod Security labels, given as "enforce=baseline".
func namespace(name string, labels ...string) *corev1.Namespace {
	n := &corev1.Namespace{}
	n.Name, n.Labels = name, map[string]string{}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		n.Labels[api.AuditAnnotationPrefix+key] = value
	}
	return n
}

// pod returns a pod with a container that violates restricted, and baseline too if it uses the network of the node.
func pod(name string, hostNetwork bool) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name = "n", name
	p.Spec.HostNetwork = hostNetwork
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	return p
}

const (
	baselineText   = "host namespaces (hostNetwork=true)"
	restrictedText = `allowPrivilegeEscalation != false (container "c" must set ` +
		`securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set ` +
		`securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set ` +
		`securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set ` +
		`securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")`
)

func in(labels ...string) admissiontest.Objects {
	return admissiontest.Objects{namespaces: []registry.Object{namespace("n", labels...)}}
}

func TestPodsAreComparedWithTheirNamespace(t *testing.T) {
	update := func(old, changed *corev1.Pod, subresource string) *admission.Attributes {
		a := admissiontest.Change(pods, changed, old)
		a.Subresource = subresource
		return a
	}
	image := pod("p", true)
	image.Spec.Containers[0].Image = "other"
	debug := pod("p", true)
	debug.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "i"}},
	}
	labelled := pod("p", true)
	labelled.Labels = map[string]string{"a": "b"}
	refused := `pods "p" is forbidden: violates PodSecurity "baseline:latest": ` + baselineText
	for name, c := range map[string]struct {
		labels      []string
		a           *admission.Attributes
		err         string
		warnings    []string
		annotations map[string]string
		counts      counts
	}{
		"no labels": {
			a: admissiontest.Creation(pods, pod("p", true)), annotations: map[string]string{
				"enforce-policy": "privileged:latest",
			},
			counts: counts{"allow privileged:latest enforce create pod/"},
		},
		"baseline, allowed": {
			labels: []string{"enforce=baseline"}, a: admissiontest.Creation(pods, pod("p", false)),
			annotations: map[string]string{"enforce-policy": "baseline:latest"},
			counts:      counts{"allow baseline:latest enforce create pod/"},
		},
		"baseline, refused": {
			labels: []string{"enforce=baseline", "audit=baseline"}, a: admissiontest.Creation(pods, pod("p", true)),
			err: refused,
			annotations: map[string]string{
				"enforce-policy":   "baseline:latest",
				"audit-violations": `would violate PodSecurity "baseline:latest": ` + baselineText,
			},
			counts: counts{"deny baseline:latest enforce create pod/", "deny baseline:latest audit create pod/"},
		},
		"warn and audit": {
			labels: []string{"warn=restricted", "warn-version=v1.40", "audit=baseline", "audit-version=v1.20"},
			a:      admissiontest.Creation(pods, pod("p", true)),
			warnings: []string{
				`would violate PodSecurity \"restricted:v1.40\": ` + baselineText + ", " +
					strings.ReplaceAll(restrictedText, `"`, `\"`),
			},
			annotations: map[string]string{
				"enforce-policy":   "privileged:latest",
				"audit-violations": `would violate PodSecurity "baseline:v1.20": ` + baselineText,
			},
			counts: counts{
				"allow privileged:latest enforce create pod/", "deny baseline:v1.20 audit create pod/",
				"deny restricted:future warn create pod/",
			},
		},
		"invalid labels stand for restricted": {
			labels: []string{"enforce=none"}, a: admissiontest.Creation(pods, pod("p", false)),
			err: `pods "p" is forbidden: violates PodSecurity "restricted:latest": ` + restrictedText,
			annotations: map[string]string{
				"enforce-policy": "restricted:latest",
				"error": `Failed to parse policy: metadata.labels[pod-security.kubernetes.io/enforce]: ` +
					`Invalid value: "none": must be one of privileged, baseline, restricted`,
			},
			counts: counts{"failed fatal=false create pod/", "deny restricted:latest enforce create pod/"},
		},
		"update of labels": {
			labels: []string{"enforce=baseline"}, a: update(pod("p", true), labelled, ""), annotations: map[string]string{},
		},
		"update of an image": {
			labels: []string{"enforce=baseline"}, a: update(pod("p", true), image, ""), err: refused,
			annotations: map[string]string{"enforce-policy": "baseline:latest"},
			counts:      counts{"deny baseline:latest enforce update pod/"},
		},
		"ephemeral container": {
			labels: []string{"enforce=baseline"}, a: update(pod("p", true), debug, "ephemeralcontainers"), err: refused,
			annotations: map[string]string{"enforce-policy": "baseline:latest"},
			counts:      counts{"deny baseline:latest enforce update pod/ephemeralcontainers"},
		},
		"ephemeral container that was there": {
			labels: []string{"enforce=baseline"}, a: update(debug, debug, "ephemeralcontainers"),
			annotations: map[string]string{},
		},
		"status": {
			labels: []string{"enforce=baseline"}, a: update(pod("p", true), image, "status"), annotations: map[string]string{},
		},
	} {
		got := try(t, defaults(t), in(c.labels...), c.a)
		if text(got.err) != c.err {
			t.Errorf("%s: %v, want %s", name, got.err, c.err)
		}
		if !slices.Equal(got.warnings, c.warnings) || fmt.Sprint(got.annotations) != fmt.Sprint(c.annotations) ||
			!slices.Equal(got.counts, c.counts) {
			t.Errorf("%s: warnings %q, want %q\nannotations %q, want %q\ncounts %q, want %q",
				name, got.warnings, c.warnings, got.annotations, c.annotations, got.counts, c.counts)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestTemplatesAreNeverRefused(t *testing.T) {
	template := corev1.PodTemplateSpec{Spec: pod("p", true).Spec}
	job := batchv1.JobSpec{Template: template}
	for resource, obj := range map[schema.GroupResource]registry.Object{
		corev1.Resource("podtemplates"): &corev1.PodTemplate{Template: template},
		corev1.Resource("replicationcontrollers"): &corev1.ReplicationController{
			Spec: corev1.ReplicationControllerSpec{Template: &template},
		},
		appsv1.Resource("replicasets"):  &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: template}},
		appsv1.Resource("deployments"):  &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template}},
		appsv1.Resource("daemonsets"):   &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: template}},
		appsv1.Resource("statefulsets"): &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: template}},
		batchv1.Resource("jobs"):        &batchv1.Job{Spec: job},
		batchv1.Resource("cronjobs"): &batchv1.CronJob{
			Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: job}},
		},
	} {
		a := admissiontest.Creation(resource, obj)
		a.Namespace = "n"
		got := try(t, defaults(t), in("enforce=baseline"), a)
		want := counts{"deny baseline:latest warn create controller/"}
		if got.err != nil || len(got.warnings) != 1 || !slices.Equal(got.counts, want) || len(got.annotations) != 0 {
			t.Errorf(
				"%v: %v, warnings %q, annotations %q, counts %q", resource, got.err, got.warnings, got.annotations,
				got.counts,
			)
		}
		a.Subresource = "status"
		if got := try(t, defaults(t), in("enforce=baseline"), a); len(got.warnings) != 0 {
			t.Errorf("%v/status: %q", resource, got.warnings)
		}
		a.Subresource = ""
		if got := try(t, defaults(t), in("enforce=baseline", "warn=privileged"), a); len(got.warnings)+len(got.counts) != 0 {
			t.Errorf("%v without the mode warn: %q, %q", resource, got.warnings, got.counts)
		}
		if got := try(t, defaults(t), admissiontest.Objects{}, a); got.err != nil || got.annotations["error"] == "" {
			t.Errorf("%v in no namespace: %v, %q", resource, got.err, got.annotations)
		}
	}
	empty := admissiontest.Creation(corev1.Resource("replicationcontrollers"), &corev1.ReplicationController{})
	empty.Namespace = "n"
	if got := try(t, defaults(t), in("enforce=baseline"), empty); len(got.warnings)+len(got.counts) != 0 {
		t.Errorf("without a template: %q, %q", got.warnings, got.counts)
	}
}

func TestExemptions(t *testing.T) {
	c, err := DecodeConfig([]byte(`{
		"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration",
		"defaults":{"enforce":"restricted"},
		"exemptions":{"usernames":["root"],"namespaces":["free"],"runtimeClasses":["sandboxed"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	all := admissiontest.Objects{namespaces: []registry.Object{namespace("n"), namespace("free")}}
	sandboxed := pod("p", true)
	sandboxed.Spec.RuntimeClassName = ptr.To("sandboxed")
	free := pod("p", true)
	free.Namespace = "free"
	for name, c2 := range map[string]struct {
		pod    *corev1.Pod
		user   string
		exempt string
	}{
		"nobody":        {pod("p", true), "u", ""},
		"user":          {pod("p", true), "root", "user"},
		"namespace":     {free, "u", "namespace"},
		"runtime class": {sandboxed, "u", "runtimeClass"},
	} {
		a := admissiontest.Creation(pods, c2.pod)
		a.User = &request.User{Name: c2.user}
		got := try(t, c, all, a)
		if (got.err == nil) != (c2.exempt != "") || got.annotations["exempt"] != c2.exempt {
			t.Errorf("%s: %v, annotations %q", name, got.err, got.annotations)
		}
		if c2.exempt != "" && !slices.Equal(got.counts, counts{"exempt create pod/"}) {
			t.Errorf("%s: counts %q", name, got.counts)
		}
	}
}

func TestPodsOfAMissingNamespaceFail(t *testing.T) {
	got := try(t, defaults(t), admissiontest.Objects{}, admissiontest.Creation(pods, pod("p", false)))
	if !kerrors.IsInternalError(got.err) || got.err.Error() != `Internal error occurred: failed to lookup namespace "n"` {
		t.Errorf("%v", got.err)
	}
	if !slices.Equal(got.counts, counts{"failed fatal=true create pod/"}) {
		t.Errorf("counts %q", got.counts)
	}
}

func TestLabelsOfNamespacesAreValidated(t *testing.T) {
	const invalid = `Namespace "n" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: ` +
		`"none": must be one of privileged, baseline, restricted`
	good, bad := namespace("n", "enforce=baseline"), namespace("n", "enforce=none")
	worse := namespace("n", "enforce=none", "warn-version=1")
	for name, c := range map[string]struct {
		a    *admission.Attributes
		want string
	}{
		"create, good": {admissiontest.Creation(namespaces, good), ""},
		"create, bad":  {admissiontest.Creation(namespaces, bad), invalid},
		"update to":    {admissiontest.Change(namespaces, bad, good), invalid},
		"update from":  {admissiontest.Change(namespaces, good, bad), ""},
		"update of":    {admissiontest.Change(namespaces, bad, bad), ""},
		"more": {admissiontest.Change(namespaces, worse, bad), `Namespace "n" is invalid: [` +
			strings.TrimPrefix(invalid, `Namespace "n" is invalid: `) +
			`, metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: "1": must be "latest" or "v1.x"]`},
	} {
		got := try(t, defaults(t), admissiontest.Objects{}, c.a)
		if text(got.err) != c.want || got.err != nil && !kerrors.IsInvalid(got.err) {
			t.Errorf("%s: %v, want %s", name, got.err, c.want)
		}
		c.a.Subresource = "status"
		if got := try(t, defaults(t), admissiontest.Objects{}, c.a); got.err != nil {
			t.Errorf("%s, status: %v", name, got.err)
		}
	}
}

// owned returns pods of one controller with the same violation.
func owned(controller string, names ...string) []registry.Object {
	var out []registry.Object
	for _, name := range names {
		p := pod(name, true)
		p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(controller), Controller: ptr.To(true)}}
		out = append(out, p)
	}
	return out
}

func TestNewLevelsAreComparedWithExistingPods(t *testing.T) {
	existing := append(owned("a", "a2", "a1", "a3"), pod("quiet", false), pod("loud", true))
	restricted := namespace("n", "enforce=restricted", "enforce-version=v1.20")
	two := append(owned("a", "a1", "a2"), pod("quiet", false))
	const head = `existing pods in namespace \"n\" violate the new PodSecurity enforce level `
	for name, c := range map[string]struct {
		pods     []registry.Object
		old, now *corev1.Namespace
		want     []string
	}{
		"stricter": {existing, namespace("n"), namespace("n", "enforce=baseline"), []string{
			head + `\"baseline:latest\"`, "a1 (and 3 other pods): host namespaces",
		}},
		"strictest": {two, namespace("n", "enforce=baseline"), restricted, []string{
			head + `\"restricted:v1.20\"`,
			"a1 (and 1 other pod): host namespaces, allowPrivilegeEscalation != false, runAsNonRoot != true, seccompProfile",
			"quiet: allowPrivilegeEscalation != false, runAsNonRoot != true, seccompProfile",
		}},
		"laxer": {existing, namespace("n", "enforce=restricted"), namespace("n", "enforce=baseline"), nil},
		"none":  {existing, namespace("n", "enforce=restricted"), namespace("n"), nil},
		"same":  {existing, namespace("n", "enforce=baseline"), namespace("n", "enforce=baseline", "warn=restricted"), nil},
		"other version": {
			two[2:], namespace("n", "enforce=baseline"), namespace("n", "enforce=baseline", "enforce-version=v1.20"), nil,
		},
		"no pods": {nil, namespace("n"), namespace("n", "enforce=restricted"), nil},
	} {
		got := try(t, defaults(t), admissiontest.Objects{pods: c.pods}, admissiontest.Change(namespaces, c.now, c.old))
		if got.err != nil || !slices.Equal(got.warnings, c.want) {
			t.Errorf("%s: %v, %q, want %q", name, got.err, got.warnings, c.want)
		}
	}
}

func TestExemptNamespacesAreToldThatTheirLabelsAreIgnored(t *testing.T) {
	c := defaults(t)
	c.Exemptions = Exemptions{Namespaces: []string{"n"}, RuntimeClasses: []string{"sandboxed"}}
	strict := namespace("n", "enforce=baseline", "audit-version=v1.20", "warn=restricted")
	want := []string{
		`namespace \"n\" is exempt from Pod Security, and the policy (enforce=baseline:latest, warn=restricted:latest) ` +
			`will be ignored`,
	}
	for name, a := range map[string]*admission.Attributes{
		"create": admissiontest.Creation(namespaces, strict),
		"update": admissiontest.Change(namespaces, strict, namespace("n")),
	} {
		got := try(t, c, admissiontest.Objects{pods: {pod("p", true)}}, a)
		if got.err != nil || !slices.Equal(got.warnings, want) {
			t.Errorf("%s: %v, %q", name, got.err, got.warnings)
		}
	}
	plain := admissiontest.Creation(namespaces, namespace("n"))
	if got := try(t, c, admissiontest.Objects{}, plain); len(got.warnings) > 0 {
		t.Errorf("without labels: %q", got.warnings)
	}
	sandboxed := pod("p", true)
	sandboxed.Namespace, sandboxed.Spec.RuntimeClassName = "o", ptr.To("sandboxed")
	a := admissiontest.Change(namespaces, namespace("o", "enforce=baseline"), namespace("o"))
	if got := try(t, c, admissiontest.Objects{pods: {sandboxed}}, a); len(got.warnings) > 0 {
		t.Errorf("pods of an exempt class: %q", got.warnings)
	}
}

// counted counts the pods that are decoded.
type counted struct {
	admissiontest.Objects
	decoded int
}

func (c *counted) Each(
	ctx context.Context, r schema.GroupResource, namespace string, yield func(func() (registry.Object, error)) bool,
) error {
	return c.Objects.Each(ctx, r, namespace, func(decode func() (registry.Object, error)) bool {
		return yield(func() (registry.Object, error) {
			c.decoded++
			return decode()
		})
	})
}

// TestTheNumberOfExistingPodsIsBounded has more pods than may be compared. Those of one controller come last.
func TestTheNumberOfExistingPodsIsBounded(t *testing.T) {
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("replica%02d", i))
	}
	existing := owned("a", names...)
	for i := range 10 {
		existing = append(existing, pod(fmt.Sprintf("single%02d", i), true))
	}
	all := &counted{Objects: admissiontest.Objects{pods: existing}}
	p, err := newPlugin(defaults(t), Options{Objects: all, Metrics: new(counts), Version: "v1.36"})
	if err != nil {
		t.Fatal(err)
	}
	p.maxPods = 5
	out, err := p.sample(t.Context(), t.Context(), "n")
	var got []string
	for _, pod := range out.pods {
		got = append(got, pod.Name)
	}
	want := []string{"replica00", "single00", "single01", "single02", "single03"}
	if err != nil || !slices.Equal(got, want) || out.total != len(existing) || all.decoded != 54 {
		t.Errorf("%v: %q of %d, %d decoded", err, got, out.total, all.decoded)
	}
	baseline := api.LevelVersion{Level: api.LevelBaseline, Version: api.LatestVersion()}
	texts := p.violations(t.Context(), "n", baseline)
	const incomplete = "new PodSecurity enforce level only checked against the first 5 of 60 existing pods"
	if len(texts) != 3 || texts[0] != incomplete || texts[2] != "replica00 (and 4 other pods): host namespaces" {
		t.Errorf("%q", texts)
	}
	p.maxPods, all.decoded = 55, 0
	if out, err = p.sample(t.Context(), t.Context(), "n"); err != nil || len(out.pods) != 55 || all.decoded != 60 {
		t.Errorf("%v: %d of %d, %d decoded", err, len(out.pods), out.total, all.decoded)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	all.decoded = 0
	out, err = p.sample(t.Context(), done, "n")
	if err != nil || len(out.pods) != 0 || out.total != 60 || all.decoded != 0 {
		t.Errorf("without time: %v: %d of %d, %d decoded", err, len(out.pods), out.total, all.decoded)
	}
}

// failing fails to list.
type failing struct{ admissiontest.Objects }

func (failing) Each(
	context.Context, schema.GroupResource, string, func(func() (registry.Object, error)) bool,
) error {
	return errors.New("no")
}

func TestPodsThatCannotBeListedAreAWarning(t *testing.T) {
	got := try(
		t, defaults(t), failing{}, admissiontest.Change(namespaces, namespace("n", "enforce=baseline"), namespace("n")),
	)
	want := []string{"failed to list pods while checking new PodSecurity enforce level"}
	if got.err != nil || !slices.Equal(got.warnings, want) {
		t.Errorf("%v, %q", got.err, got.warnings)
	}
}
