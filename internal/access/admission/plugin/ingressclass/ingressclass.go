// Package ingressclass sets the default class of an Ingress without a class (DefaultIngressClass).
package ingressclass

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var (
	ingresses = networkingv1.Resource("ingresses")
	classes   = networkingv1.Resource("ingressclasses")
)

// annotationClass is the annotation that named the class before the field spec.ingressClassName existed.
const annotationClass = "kubernetes.io/ingress.class"

// Plugin returns the plug-in.
func Plugin(in admission.Objects) admission.Plugin {
	p := plugin{in}
	return admission.Plugin{Name: "DefaultIngressClass", Mutate: p.mutate}
}

type plugin struct{ objects admission.Objects }

func (p *plugin) mutate(ctx context.Context, a *admission.Attributes) error {
	if !a.Is(ingresses, admission.Create) {
		return nil
	}
	ingress := a.Object.(*networkingv1.Ingress)
	if _, old := ingress.Annotations[annotationClass]; old || ingress.Spec.IngressClassName != nil {
		return nil
	}
	all, err := p.objects.List(ctx, classes, "")
	if err != nil {
		return err
	}
	if class := admission.Newest(all, isDefault); class != nil {
		ingress.Spec.IngressClassName = ptr.To(class.GetName())
	}
	return nil
}

func isDefault(class registry.Object) bool {
	return class.GetAnnotations()[networkingv1.AnnotationIsDefaultIngressClass] == "true"
}
