// Package podtopologylabels copies the labels for zone and region from a node to the pods that are assigned to it
// (PodTopologyLabels).
package podtopologylabels

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var (
	pods  = corev1.Resource("pods")
	nodes = corev1.Resource("nodes")
)

var copied = []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion}

// Plugin returns the plug-in.
func Plugin(in admission.Objects) admission.Plugin {
	return admission.Plugin{Name: "PodTopologyLabels", Mutate: (&plugin{in}).mutate}
}

type plugin struct{ objects admission.Objects }

// mutate labels new pods that already have a node. For other pods it labels the Binding, from which the labels are
// copied to the pod.
func (p *plugin) mutate(ctx context.Context, a *admission.Attributes) error {
	if a.Resource != pods || a.Operation != admission.Create {
		return nil
	}
	switch a.Subresource {
	case "":
		return p.label(ctx, a.Object, a.Object.(*corev1.Pod).Spec.NodeName)
	case "binding":
		if target := &a.Object.(*corev1.Binding).Target; target.Kind == "Node" {
			return p.label(ctx, a.Object, target.Name)
		}
	}
	return nil
}

// label copies the labels of a node to an object. It does nothing if the node does not exist.
func (p *plugin) label(ctx context.Context, obj registry.Object, node string) error {
	if node == "" {
		return nil
	}
	found, err := p.objects.Lookup(ctx, nodes, "", node)
	if err != nil || found == nil {
		return err
	}
	has, labels := found.GetLabels(), obj.GetLabels()
	for _, key := range copied {
		value, ok := has[key]
		if !ok {
			continue
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = value
	}
	obj.SetLabels(labels)
	return nil
}
