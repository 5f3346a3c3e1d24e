// Package podnodeselector keeps the pods of a namespace on the nodes that are meant for it (PodNodeSelector): it adds
// the node selector of the namespace to pods, and refuses pods with other node selectors than the configuration allows.
package podnodeselector

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/pluginconfig"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
)

var (
	pods       = corev1.Resource("pods")
	namespaces = corev1.Resource("namespaces")
)

const (
	// annotation has the node selector of a namespace.
	annotation = "scheduler.alpha.kubernetes.io/node-selector"
	// clusterDefault is the key of Config.Default in a configuration file.
	clusterDefault = "clusterDefaultNodeSelector"
)

// Config is the configuration of the plug-in.
type Config struct {
	// Default is the node selector of namespaces without the annotation.
	Default labels.Set
	// Allowed are the labels that node selectors of pods may have, by namespace. A namespace without an entry allows
	// all.
	Allowed map[string]labels.Set
}

// DecodeConfig decodes a configuration. Its member podNodeSelectorPluginConfig maps clusterDefaultNodeSelector, or
// the name of a namespace, to a node selector. nil is an empty configuration.
func DecodeConfig(raw []byte) (Config, error) {
	var file struct {
		Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if raw == nil {
		return Config{}, nil
	}
	if err := pluginconfig.DecodeUnversioned(raw, &file); err != nil {
		return Config{}, err
	}
	c := Config{Allowed: map[string]labels.Set{}}
	for name, text := range file.Selectors {
		selector, err := request.LabelsOfAnnotation(text)
		if err != nil {
			return Config{}, fmt.Errorf("podNodeSelectorPluginConfig[%s]: %w", name, err)
		}
		if name == clusterDefault {
			c.Default = selector
		} else {
			c.Allowed[name] = selector
		}
	}
	return c, nil
}

// Plugin returns the plug-in.
func Plugin(in admission.Objects, c Config) admission.Plugin {
	p := plugin{in, c}
	return admission.Plugin{Name: "PodNodeSelector", Mutate: p.mutate, Validate: p.validate}
}

type plugin struct {
	objects admission.Objects
	config  Config
}

var (
	errConflict   = errors.New("pod node label selector conflicts with its namespace node label selector")
	errNotAllowed = errors.New("pod node label selector labels conflict with its namespace whitelist")
)

// mutate adds the selector of the namespace. A pod that may not be created is refused before it is validated.
func (p *plugin) mutate(ctx context.Context, a *admission.Attributes) error {
	return p.check(ctx, a, true)
}

func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	return p.check(ctx, a, false)
}

func (p *plugin) check(ctx context.Context, a *admission.Attributes, change bool) error {
	if !a.Is(pods, admission.Create) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	required, err := p.required(ctx, a.Namespace)
	if err != nil {
		return err
	}
	if labels.Conflicts(required, pod.Spec.NodeSelector) {
		return kerrors.NewForbidden(pods, pod.Name, errConflict)
	}
	if change && len(required) > 0 {
		pod.Spec.NodeSelector = labels.Merge(required, pod.Spec.NodeSelector)
	}
	return p.checkAllowed(a.Namespace, pod)
}

// required returns the node selector of a namespace.
func (p *plugin) required(ctx context.Context, name string) (labels.Set, error) {
	namespace, err := p.objects.Lookup(ctx, namespaces, "", name)
	switch {
	case err != nil:
		return nil, err
	case namespace == nil:
		return nil, kerrors.NewInternalError(fmt.Errorf("namespace %s does not exist", name))
	}
	text, ok := namespace.GetAnnotations()[annotation]
	if !ok {
		return p.config.Default, nil
	}
	selector, err := request.LabelsOfAnnotation(text)
	if err != nil {
		return nil, apierr.New(http.StatusInternalServerError, "", err.Error())
	}
	return selector, nil
}

// checkAllowed returns an error if the pod has a label in its node selector that its namespace does not allow.
func (p *plugin) checkAllowed(namespace string, pod *corev1.Pod) error {
	allowed := p.config.Allowed[namespace]
	if len(allowed) == 0 {
		return nil
	}
	for key, value := range pod.Spec.NodeSelector {
		if other, ok := allowed[key]; !ok || other != value {
			return kerrors.NewForbidden(pods, pod.Name, errNotAllowed)
		}
	}
	return nil
}
