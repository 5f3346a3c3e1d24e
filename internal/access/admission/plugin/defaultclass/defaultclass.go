// Package defaultclass sets the default class of the cluster in a new Ingress (DefaultIngressClass) or
// PersistentVolumeClaim (DefaultStorageClass) that names no class.
package defaultclass

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var (
	ingresses      = networkingv1.Resource("ingresses")
	ingressClasses = networkingv1.Resource("ingressclasses")
	claims         = corev1.Resource("persistentvolumeclaims")
	storageClasses = storagev1.Resource("storageclasses")
)

const (
	// annotatedIngressClass names the class of an Ingress from before spec.ingressClassName existed.
	annotatedIngressClass = "kubernetes.io/ingress.class"
	// The annotations that mark the default StorageClass. The second one is the older beta form.
	defaultStorageClass     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultStorageClass = "storageclass.beta.kubernetes.io/is-default-class"
)

// Ingress returns the plug-in of Ingresses.
func Ingress(objects admission.Objects) admission.Plugin {
	p := plugin{objects: objects, of: ingresses, classes: ingressClasses}
	p.class = func(o registry.Object) (class **string, annotation string) {
		return &o.(*networkingv1.Ingress).Spec.IngressClassName, annotatedIngressClass
	}
	p.isDefault = func(class registry.Object) bool {
		return class.GetAnnotations()[networkingv1.AnnotationIsDefaultIngressClass] == "true"
	}
	return admission.Plugin{Name: "DefaultIngressClass", Mutate: p.mutate}
}

// Storage returns the plug-in of PersistentVolumeClaims.
func Storage(objects admission.Objects) admission.Plugin {
	p := plugin{objects: objects, of: claims, classes: storageClasses}
	p.class = func(o registry.Object) (class **string, annotation string) {
		return &o.(*corev1.PersistentVolumeClaim).Spec.StorageClassName, corev1.BetaStorageClassAnnotation
	}
	p.isDefault = func(class registry.Object) bool {
		annotations := class.GetAnnotations()
		return annotations[defaultStorageClass] == "true" || annotations[betaDefaultStorageClass] == "true"
	}
	return admission.Plugin{Name: "DefaultStorageClass", Mutate: p.mutate}
}

type plugin struct {
	objects     admission.Objects
	of, classes schema.GroupResource
	// class returns the field of the class in an object, and the annotation that names a class in place of the field.
	class     func(registry.Object) (class **string, annotation string)
	isDefault func(class registry.Object) bool
}

func (p *plugin) mutate(ctx context.Context, a *admission.Attributes) error {
	if !a.Is(p.of, admission.Create) {
		return nil
	}
	class, annotation := p.class(a.Object)
	if _, annotated := a.Object.GetAnnotations()[annotation]; annotated || *class != nil {
		return nil
	}
	all, err := p.objects.List(ctx, p.classes, "")
	if err != nil {
		return err
	}
	if found := admission.Newest(all, p.isDefault); found != nil {
		*class = ptr.To(found.GetName())
	}
	return nil
}
