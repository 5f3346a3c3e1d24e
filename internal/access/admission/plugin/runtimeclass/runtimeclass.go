// Package runtimeclass gives pods the overhead and the scheduling constraints of their RuntimeClass (RuntimeClass).
package runtimeclass

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/tolerations"
	"github.com/keelson-dev/keelson/internal/object/apierr"
)

var (
	pods    = corev1.Resource("pods")
	classes = nodev1.Resource("runtimeclasses")
)

var (
	errOtherOverhead     = errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	errUndefinedOverhead = errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
)

// Plugin returns the plug-in.
func Plugin(in admission.Objects) admission.Plugin {
	p := plugin{in}
	return admission.Plugin{Name: "RuntimeClass", Mutate: p.mutate, Validate: p.validate}
}

type plugin struct{ objects admission.Objects }

// class returns the class of a pod, nil if the pod names none. It is an error if there is no such class.
func (p *plugin) class(ctx context.Context, a *admission.Attributes, pod *corev1.Pod) (*nodev1.RuntimeClass, error) {
	name := pod.Spec.RuntimeClassName
	switch {
	case name == nil:
		return nil, nil
	case *name == "":
		return nil, apierr.New(http.StatusInternalServerError, "", "resource name may not be empty") // as kube-apiserver
	}
	obj, err := p.objects.Lookup(ctx, classes, "", *name)
	switch {
	case err != nil:
		return nil, err
	case obj == nil:
		return nil, a.Forbiddenf("pod rejected: RuntimeClass %q not found", *name)
	}
	return obj.(*nodev1.RuntimeClass), nil
}

func (p *plugin) mutate(ctx context.Context, a *admission.Attributes) error {
	if !a.Is(pods, admission.Create) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	class, err := p.class(ctx, a, pod)
	if err != nil || class == nil {
		return err
	}
	if class.Overhead != nil {
		if err := setOverhead(&pod.Spec, class.Overhead.PodFixed); err != nil {
			return a.Forbidden(err)
		}
	}
	if class.Scheduling != nil {
		if err := setScheduling(&pod.Spec, class.Scheduling); err != nil {
			return a.Forbidden(err)
		}
	}
	return nil
}

func setOverhead(spec *corev1.PodSpec, overhead corev1.ResourceList) error {
	if len(spec.Overhead) > 0 && !equality.Semantic.DeepEqual(spec.Overhead, overhead) {
		return errOtherOverhead
	}
	spec.Overhead = overhead.DeepCopy()
	return nil
}

func setScheduling(spec *corev1.PodSpec, scheduling *nodev1.Scheduling) error {
	for _, key := range slices.Sorted(maps.Keys(scheduling.NodeSelector)) {
		value := scheduling.NodeSelector[key]
		if own, ok := spec.NodeSelector[key]; ok && own != value {
			return fmt.Errorf(
				"conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, own,
			)
		}
		if spec.NodeSelector == nil {
			spec.NodeSelector = map[string]string{}
		}
		spec.NodeSelector[key] = value
	}
	spec.Tolerations = tolerations.Merge(spec.Tolerations, scheduling.Tolerations)
	return nil
}

// validate refuses a pod whose overhead differs from the overhead of its class.
func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if !a.Is(pods, admission.Create) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	class, err := p.class(ctx, a, pod)
	switch {
	case err != nil:
		return err
	case class == nil || class.Overhead == nil:
		if pod.Spec.Overhead != nil {
			return a.Forbidden(errUndefinedOverhead)
		}
	case !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead):
		return a.Forbidden(errOtherOverhead)
	}
	return nil
}
