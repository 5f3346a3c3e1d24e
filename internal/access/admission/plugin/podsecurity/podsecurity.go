// Package podsecurity compares pods with the Pod Security Standards (PodSecurity). Labels of a namespace name a level
// (privileged, baseline, restricted) and its version for each of three modes: enforce refuses pods, warn adds warnings
// to the response, audit adds annotations to the audit event. Workloads with a pod template are compared too, but never
// refused. The checks themselves are those of Kubernetes (k8s.io/pod-security-admission/policy).
//
// The order of the files: podsecurity.go has the writes of pods and workloads, namespace.go those of namespaces,
// config.go the configuration.
package podsecurity

import (
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var (
	pods       = corev1.Resource("pods")
	namespaces = corev1.Resource("namespaces")
)

// Objects is where the plug-in finds namespaces and pods; *registry.Registry implements it.
type Objects interface {
	Lookup(ctx context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error)
	// Each calls yield for each object of a namespace in the order of their names, until it returns false.
	// decode makes the object.
	Each(ctx context.Context, r schema.GroupResource, namespace string,
		yield func(decode func() (registry.Object, error)) bool) error
}

// Metrics counts the work of the plug-in. An argument version is "future" if it is newer than the version of the
// server.
type Metrics interface {
	// Evaluated counts the comparison of a pod with a level. Comparisons in the modes audit and warn are only
	// counted if the pod violates the level.
	Evaluated(decision, level, version, mode string, r Request)
	// Exempted counts a request that was exempt.
	Exempted(r Request)
	// Failed counts an error. Unless it is fatal, the pod was compared with the level restricted.
	Failed(fatal bool, r Request)
}

// Request has the labels that all metrics have: create or update; pod or controller; the subresource of the pod.
type Request = struct{ Operation, Resource, Subresource string }

// Options are the dependencies of the plug-in.
type Options struct {
	Objects Objects
	Metrics Metrics
	// Version is the version of Kubernetes that the server implements, such as v1.36.
	Version string
}

// Plugin returns the plug-in.
func Plugin(c Config, o Options) (admission.Plugin, error) {
	p, err := newPlugin(c, o)
	if err != nil {
		return admission.Plugin{}, err
	}
	return admission.Plugin{Name: "PodSecurity", Validate: p.validate}, nil
}

// evaluator returns the checks of the Pod Security Standards for all versions. They do not change, so that all plug-ins of
// a process have the same.
var evaluator = sync.OnceValues(func() (policy.Evaluator, error) {
	return policy.NewEvaluator(policy.DefaultChecks(), nil)
})

func newPlugin(c Config, o Options) (*plugin, error) {
	version, err := api.ParseVersion(o.Version)
	if err != nil {
		return nil, fmt.Errorf("version %q: %w", o.Version, err)
	}
	evaluator, err := evaluator()
	if err != nil {
		return nil, err
	}
	return &plugin{
		config: c, objects: o.Objects, metrics: o.Metrics, version: version, evaluator: evaluator,
		limits: limits{maxPods, maxTime},
	}, nil
}

type plugin struct {
	config    Config
	objects   Objects
	metrics   Metrics
	version   api.Version
	evaluator policy.Evaluator

	limits
}

func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if a.Operation != admission.Create && a.Operation != admission.Update {
		return nil
	}
	switch a.Resource {
	case pods:
		switch a.Subresource {
		case "", "ephemeralcontainers", "resize":
			return p.checkPod(ctx, a)
		}
	case namespaces:
		if a.Subresource == "" {
			return p.checkNamespace(ctx, a)
		}
	default:
		if template, ok := templateOf(a); ok {
			p.checkTemplate(ctx, a, template)
		}
	}
	return nil
}

// templateOf returns the pod template of a workload, which may be nil. It returns false for other objects.
func templateOf(a *admission.Attributes) (*corev1.PodTemplateSpec, bool) {
	if a.Subresource != "" {
		return nil, false
	}
	switch o := a.Object.(type) {
	case *corev1.PodTemplate:
		return &o.Template, true
	case *corev1.ReplicationController:
		return o.Spec.Template, true
	case *appsv1.ReplicaSet:
		return &o.Spec.Template, true
	case *appsv1.Deployment:
		return &o.Spec.Template, true
	case *appsv1.DaemonSet:
		return &o.Spec.Template, true
	case *appsv1.StatefulSet:
		return &o.Spec.Template, true
	case *batchv1.Job:
		return &o.Spec.Template, true
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template, true
	}
	return nil, false
}

// metricsRequest returns the labels of a request.
func metricsRequest(a *admission.Attributes) Request {
	r := Request{Operation: "create", Resource: "controller", Subresource: a.Subresource}
	if a.Operation == admission.Update {
		r.Operation = "update"
	}
	if a.Resource == pods {
		r.Resource = "pod"
	}
	return r
}

// annotate adds an annotation to the audit event.
func annotate(ctx context.Context, key, value string) {
	audit.Annotate(ctx, api.AuditAnnotationPrefix+key, value)
}

// isExempt reports whether the namespace or the user is exempt.
func (p *plugin) isExempt(ctx context.Context, a *admission.Attributes) bool {
	reason := ""
	switch {
	case slices.Contains(p.config.Exemptions.Namespaces, a.Namespace):
		reason = "namespace"
	case a.User != nil && slices.Contains(p.config.Exemptions.Usernames, a.User.Name):
		reason = "user"
	default:
		return false
	}
	annotate(ctx, api.ExemptionReasonAnnotationKey, reason)
	p.metrics.Exempted(metricsRequest(a))
	return true
}

// policyOf returns the policy of a namespace. Invalid labels mean restricted:latest in the mode enforce; then invalid
// is also set.
func (p *plugin) policyOf(ctx context.Context, namespace string) (levels api.Policy, invalid, err error) {
	obj, err := p.objects.Lookup(ctx, namespaces, "", namespace)
	if err == nil && obj == nil {
		err = kerrors.NewNotFound(namespaces, namespace)
	}
	if err != nil {
		return api.Policy{}, nil, err
	}
	levels, errs := api.PolicyToEvaluate(obj.GetLabels(), p.config.Defaults)
	return levels, errs.ToAggregate(), nil
}

// checkPod refuses a pod that violates the level of its namespace. Updates of pods are only compared if they change
// containers or their images: other updates cannot make a pod violate a level.
func (p *plugin) checkPod(ctx context.Context, a *admission.Attributes) error {
	if p.isExempt(ctx, a) {
		return nil
	}
	levels, invalid, err := p.policyOf(ctx, a.Namespace)
	if err != nil {
		failed := kerrors.NewInternalError(fmt.Errorf("failed to lookup namespace %q", a.Namespace))
		annotate(ctx, "error", fmt.Sprintf("%s: %v", failed.ErrStatus.Message, err))
		p.metrics.Failed(true, metricsRequest(a))
		return failed
	}
	if invalid == nil && levels.FullyPrivileged() {
		annotate(ctx, api.EnforcedPolicyAnnotationKey, "privileged:latest")
		p.count("allow", levels.Enforce, "enforce", a)
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	if old, ok := a.Old.(*corev1.Pod); ok && a.Operation == admission.Update && !changesContainers(pod, old) {
		return nil
	}
	return p.evaluate(ctx, a, levels, invalid, &pod.ObjectMeta, &pod.Spec)
}

// checkTemplate warns of a workload whose pods would violate a level.
func (p *plugin) checkTemplate(ctx context.Context, a *admission.Attributes, template *corev1.PodTemplateSpec) {
	if p.isExempt(ctx, a) {
		return
	}
	levels, invalid, err := p.policyOf(ctx, a.Namespace)
	if err != nil {
		annotate(ctx, "error", fmt.Sprintf("failed to lookup namespace %q: %v", a.Namespace, err))
		p.metrics.Failed(true, metricsRequest(a))
		return
	}
	privileged := levels.Warn.Level == api.LevelPrivileged && levels.Audit.Level == api.LevelPrivileged
	if template == nil || invalid == nil && privileged {
		return
	}
	// Without the mode enforce nothing is refused.
	_ = p.evaluate(ctx, a, levels, invalid, &template.ObjectMeta, &template.Spec)
}

// changesContainers reports whether the update adds or removes containers or changes their images.
func changesContainers(pod, old *corev1.Pod) bool {
	sameImages := func(a, b []corev1.Container) bool {
		return slices.EqualFunc(a, b, func(a, b corev1.Container) bool { return a.Image == b.Image })
	}
	if !sameImages(pod.Spec.Containers, old.Spec.Containers) ||
		!sameImages(pod.Spec.InitContainers, old.Spec.InitContainers) {
		return true
	}
	for i := range pod.Spec.EphemeralContainers {
		c := &pod.Spec.EphemeralContainers[i]
		if !slices.ContainsFunc(old.Spec.EphemeralContainers, func(o corev1.EphemeralContainer) bool {
			return o.Name == c.Name && o.Image == c.Image
		}) {
			return true
		}
	}
	return false
}

// evaluate compares a pod, or the template of one, with the levels of its namespace. It returns a refusal only for pods.
func (p *plugin) evaluate(
	ctx context.Context, a *admission.Attributes, levels api.Policy, invalid error,
	metadata *metav1.ObjectMeta, spec *corev1.PodSpec,
) error {
	if p.exemptRuntimeClass(spec) {
		annotate(ctx, api.ExemptionReasonAnnotationKey, "runtimeClass")
		p.metrics.Exempted(metricsRequest(a))
		return nil
	}
	if invalid != nil {
		annotate(ctx, "error", fmt.Sprintf("Failed to parse policy: %v", invalid))
		p.metrics.Failed(false, metricsRequest(a))
	}
	e := evaluation{plugin: p, metadata: metadata, spec: spec}
	var refusal error
	if a.Resource == pods {
		annotate(ctx, api.EnforcedPolicyAnnotationKey, levels.Enforce.String())
		if violation := e.violation(levels.Enforce); violation != "" {
			p.count("deny", levels.Enforce, "enforce", a)
			refusal = kerrors.NewForbidden(pods, a.Name,
				fmt.Errorf("violates PodSecurity %q: %s", levels.Enforce.String(), violation))
		} else {
			p.count("allow", levels.Enforce, "enforce", a)
		}
	}
	if violation := e.violation(levels.Audit); violation != "" {
		annotate(ctx, api.AuditViolationsAnnotationKey,
			fmt.Sprintf("would violate PodSecurity %q: %s", levels.Audit.String(), violation))
		p.count("deny", levels.Audit, "audit", a)
	}
	if refusal != nil {
		return refusal
	}
	if violation := e.violation(levels.Warn); violation != "" {
		request.Warn(ctx, fmt.Sprintf("would violate PodSecurity %q: %s", levels.Warn.String(), violation))
		p.count("deny", levels.Warn, "warn", a)
	}
	return nil
}

func (p *plugin) exemptRuntimeClass(spec *corev1.PodSpec) bool {
	class := spec.RuntimeClassName
	return class != nil && *class != "" && slices.Contains(p.config.Exemptions.RuntimeClasses, *class)
}

// count counts a comparison.
func (p *plugin) count(decision string, lv api.LevelVersion, mode string, a *admission.Attributes) {
	version := lv.Version.String()
	switch {
	case lv.Level == api.LevelPrivileged:
		version = api.VersionLatest
	case !lv.Version.Latest() && p.version.Older(lv.Version):
		version = "future"
	}
	p.metrics.Evaluated(decision, string(lv.Level), version, mode, metricsRequest(a))
}

// evaluation compares one pod with several levels, each of them once.
type evaluation struct {
	*plugin
	metadata *metav1.ObjectMeta
	spec     *corev1.PodSpec
	done     []levelViolation
}

// levelViolation describes how the pod violates a level; the text is empty if it does not.
type levelViolation struct {
	api.LevelVersion
	text string
}

func (e *evaluation) violation(lv api.LevelVersion) string {
	for i := range e.done {
		if e.done[i].LevelVersion == lv {
			return e.done[i].text
		}
	}
	result := policy.AggregateCheckResults(e.evaluator.EvaluatePod(lv, e.metadata, e.spec))
	text := ""
	if !result.Allowed {
		text = result.ForbiddenDetail()
	}
	e.done = append(e.done, levelViolation{lv, text})
	return text
}
