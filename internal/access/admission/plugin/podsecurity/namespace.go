package podsecurity

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// limits bound how many pods of a namespace are compared with its new level, and for how long.
type limits struct {
	maxPods int
	maxTime time.Duration
}

// The limits of kube-apiserver.
const (
	maxPods = 3000
	maxTime = time.Second
)

// checkNamespace refuses labels that are not valid, unless they were invalid before, and warns of pods that
// violate a new level.
func (p *plugin) checkNamespace(ctx context.Context, a *admission.Attributes) error {
	namespace := a.Object.(*corev1.Namespace)
	levels, errs := api.PolicyToEvaluate(namespace.Labels, p.config.Defaults)
	invalid := func() error {
		return kerrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind(), a.Name, errs)
	}
	exempt := slices.Contains(p.config.Exemptions.Namespaces, a.Name)
	if a.Operation == admission.Create {
		if len(errs) > 0 {
			return invalid()
		}
		if exempt {
			p.warnExempt(ctx, namespace, levels)
		}
		return nil
	}
	old, oldErrs := api.PolicyToEvaluate(a.Old.GetLabels(), p.config.Defaults)
	if len(errs) > 0 && (len(oldErrs) == 0 || !reflect.DeepEqual(errs, oldErrs)) {
		return invalid()
	}
	switch {
	case levels.Enforce == old.Enforce, levels.Enforce.Level == api.LevelPrivileged:
	case levels.Enforce.Version == old.Enforce.Version &&
		api.CompareLevels(levels.Enforce.Level, old.Enforce.Level) < 1:
	case exempt:
		p.warnExempt(ctx, namespace, levels)
	default:
		for _, warning := range p.violations(ctx, namespace.Name, levels.Enforce) {
			request.Warn(ctx, warning)
		}
	}
	return nil
}

// warnExempt warns that the labels of an exempt namespace have no effect.
func (p *plugin) warnExempt(ctx context.Context, namespace *corev1.Namespace, levels api.Policy) {
	if levels.FullyPrivileged() || levels.Equivalent(&p.config.Defaults) {
		return
	}
	var ignored []string
	for _, mode := range []struct {
		name                string
		level               api.LevelVersion
		levelLabel, version string
	}{
		{"enforce", levels.Enforce, api.EnforceLevelLabel, api.EnforceVersionLabel},
		{"audit", levels.Audit, api.AuditLevelLabel, api.AuditVersionLabel},
		{"warn", levels.Warn, api.WarnLevelLabel, api.WarnVersionLabel},
	} {
		_, hasLevel := namespace.Labels[mode.levelLabel]
		_, hasVersion := namespace.Labels[mode.version]
		if mode.level.Level != api.LevelPrivileged && (hasLevel || hasVersion) {
			ignored = append(ignored, mode.name+"="+mode.level.String())
		}
	}
	request.Warn(ctx, fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored",
		namespace.Name, strings.Join(ignored, ", ")))
}

// violations returns warnings about the pods of a namespace that violate a level. Pods that violate it in the same way
// share one warning.
func (p *plugin) violations(ctx context.Context, namespace string, level api.LevelVersion) []string {
	maxTime := p.maxTime
	if end, ok := ctx.Deadline(); ok {
		maxTime = min(maxTime, time.Until(end)/2) // the rest of the request needs time, too
	}
	limited, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	sample, err := p.sample(ctx, limited, namespace)
	if err != nil {
		return []string{"failed to list pods while checking new PodSecurity enforce level"}
	}
	checked := 0
	groups := map[string]*violators{}
	for _, pod := range sample.pods {
		checked++
		result := policy.AggregateCheckResults(p.evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
		if !result.Allowed {
			reason := result.ForbiddenReason()
			if groups[reason] == nil {
				groups[reason] = &violators{first: pod.Name}
			}
			groups[reason].add(pod.Name)
		}
		if limited.Err() != nil {
			break
		}
	}
	var warnings []string
	if checked < sample.total {
		warnings = append(warnings, fmt.Sprintf(
			"new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, sample.total))
	}
	if len(groups) > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, level.String()))
	}
	var about []string
	for reason, v := range groups {
		about = append(about, v.String()+": "+reason)
	}
	slices.Sort(about)
	return append(warnings, about...)
}

// violators are the pods that violate a level in the same way.
type violators struct {
	first string // by name
	count int
}

func (v *violators) add(name string) {
	v.first = min(v.first, name)
	v.count++
}

func (v *violators) String() string {
	switch v.count {
	case 1:
		return v.first
	case 2:
		return v.first + " (and 1 other pod)"
	}
	return fmt.Sprintf("%s (and %d other pods)", v.first, v.count-1)
}

// sample has the pods to compare, and how many pods there are in total.
type sample struct {
	pods  []*corev1.Pod
	total int
}

// sample selects at most maxPods pods of a namespace: first one pod of each controller and those without a controller,
// then others. It counts the remaining pods without decoding them. After limited is done it counts all further pods in this
// way.
func (p *plugin) sample(ctx, limited context.Context, namespace string) (out sample, err error) {
	seen := map[types.UID]bool{}
	var others []*corev1.Pod
	failed := p.objects.Each(ctx, pods, namespace, func(decode func() (registry.Object, error)) bool {
		if len(out.pods) >= p.maxPods || limited.Err() != nil {
			out.total++
			return true
		}
		var obj registry.Object
		if obj, err = decode(); err != nil {
			return false
		}
		pod := obj.(*corev1.Pod)
		if p.exemptRuntimeClass(&pod.Spec) {
			return true
		}
		out.total++
		owner := metav1.GetControllerOfNoCopy(pod)
		switch {
		case owner == nil:
			out.pods = append(out.pods, pod)
		case !seen[owner.UID]:
			seen[owner.UID] = true
			out.pods = append(out.pods, pod)
		case len(others) < p.maxPods:
			others = append(others, pod)
		}
		return true
	})
	if err == nil {
		err = failed
	}
	out.pods = append(out.pods, others[:min(len(others), p.maxPods-len(out.pods))]...)
	return out, err
}
