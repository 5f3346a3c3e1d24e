// Package podtolerationrestriction adds the default tolerations of a namespace to its pods, and refuses pods with other
// tolerations than the namespace allows (PodTolerationRestriction). Pods that request CPU or memory also tolerate nodes
// that are short of memory.
package podtolerationrestriction

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/pluginconfig"
	"github.com/keelson-dev/keelson/internal/access/admission/tolerations"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

var (
	pods       = corev1.Resource("pods")
	namespaces = corev1.Resource("namespaces")
)

// The annotations of a namespace, each a list of tolerations in JSON.
const (
	defaultAnnotation = "scheduler.alpha.kubernetes.io/defaultTolerations"
	allowedAnnotation = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// Config is the configuration of the plug-in.
type Config struct {
	// Default are the tolerations that new pods get in namespaces without defaultAnnotation.
	Default []corev1.Toleration
	// Whitelist are the tolerations that pods may have in namespaces without allowedAnnotation. An empty list
	// allows all.
	Whitelist []corev1.Toleration
}

// configKind is the kind of a configuration.
var configKind = schema.GroupVersionKind{
	Group: "podtolerationrestriction.admission.k8s.io", Version: "v1alpha1", Kind: "Configuration",
}

// DecodeConfig decodes a configuration. nil is an empty configuration.
func DecodeConfig(raw []byte) (Config, error) {
	if raw == nil {
		return Config{}, nil
	}
	var file struct {
		metav1.TypeMeta `json:",inline"`
		Default         []corev1.Toleration `json:"default"`
		Whitelist       []corev1.Toleration `json:"whitelist"`
	}
	if err := pluginconfig.Decode(raw, configKind, &file); err != nil {
		return Config{}, err
	}
	path := field.NewPath("podtolerationrestriction")
	errs := slices.Concat(
		core.ValidateTolerations(file.Default, path.Child("default")),
		core.ValidateTolerations(file.Whitelist, path.Child("whitelist")),
	)
	if len(errs) > 0 {
		return Config{}, fmt.Errorf("invalid config: %w", errs.ToAggregate())
	}
	return Config{Default: file.Default, Whitelist: file.Whitelist}, nil
}

// Plugin returns the plug-in.
func Plugin(in admission.Objects, c Config) admission.Plugin {
	p := plugin{in, c}
	return admission.Plugin{Name: "PodTolerationRestriction", Mutate: p.mutate, Validate: p.validate}
}

type plugin struct {
	objects admission.Objects
	config  Config
}

// mutate adds tolerations. A pod that may not have its tolerations is refused before it is validated.
func (p *plugin) mutate(ctx context.Context, a *admission.Attributes) error {
	if !a.Is(pods, admission.Create, admission.Update) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	var added []corev1.Toleration
	if a.Operation == admission.Create {
		own, ok, err := p.fromAnnotation(ctx, a.Namespace, defaultAnnotation)
		if err != nil {
			return err
		}
		if added = own; !ok {
			added = p.config.Default
		}
	}
	if core.QOSClass(pod) != corev1.PodQOSBestEffort {
		added = append(slices.Clone(added), corev1.Toleration{
			Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	if len(added) > 0 {
		pod.Spec.Tolerations = tolerations.Merge(pod.Spec.Tolerations, added)
	}
	return p.validate(ctx, a)
}

func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if !a.Is(pods, admission.Create, admission.Update) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	if len(pod.Spec.Tolerations) == 0 {
		return nil
	}
	of := "namespace"
	allowed, ok, err := p.fromAnnotation(ctx, a.Namespace, allowedAnnotation)
	if err != nil {
		return err
	}
	if !ok {
		allowed, of = p.config.Whitelist, "cluster"
	}
	if !tolerations.Allowed(pod.Spec.Tolerations, allowed) {
		return internal(fmt.Sprintf(
			"pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", of,
		))
	}
	return nil
}

// fromAnnotation returns the tolerations in an annotation of a namespace, and whether it has the annotation.
func (p *plugin) fromAnnotation(ctx context.Context, name, key string) ([]corev1.Toleration, bool, error) {
	namespace, err := p.objects.Lookup(ctx, namespaces, "", name)
	switch {
	case err != nil:
		return nil, false, err
	case namespace == nil:
		return nil, false, kerrors.NewNotFound(namespaces, name)
	}
	text, ok := namespace.GetAnnotations()[key]
	if !ok || text == "" {
		return nil, ok, nil
	}
	var list []corev1.Toleration
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, false, internal(err.Error())
	}
	return list, true, nil
}

// internal returns an error as kube-apiserver answers it: with code 500 and only the message.
func internal(message string) error {
	return apierr.New(http.StatusInternalServerError, "", message)
}
