package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	appArmorPrefix         = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	appArmorRuntimeDefault = corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	appArmorUnconfined     = corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	appArmorLocalhost      = corev1.DeprecatedAppArmorBetaProfileNamePrefix
)

// syncAppArmor sets the AppArmor profiles of a new pod's containers from the deprecated
// annotations, unless the fields are set.
func syncAppArmor(p *corev1.Pod) {
	if p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return
	}
	eachContainer(&p.Spec, func(c *corev1.Container) {
		annotation, ok := p.Annotations[appArmorPrefix+c.Name]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			return
		}
		profile := appArmorProfile(annotation)
		whole := p.Spec.SecurityContext
		if profile == nil || whole != nil && equality.Semantic.DeepEqual(whole.AppArmorProfile, profile) {
			return
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
	})
}

func appArmorProfile(annotation string) *corev1.AppArmorProfile {
	switch {
	case annotation == appArmorUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case annotation == appArmorRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case strings.HasPrefix(annotation, appArmorLocalhost):
		if name := strings.TrimPrefix(annotation, appArmorLocalhost); name != "" {
			return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
		}
	}
	return nil
}

// validateAppArmorAnnotations requires that the deprecated annotations name containers of the pod.
func validateAppArmorAnnotations(p *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	for key := range p.Annotations {
		name, ok := strings.CutPrefix(key, appArmorPrefix)
		if !ok {
			continue
		}
		found := false
		eachContainer(&p.Spec, func(c *corev1.Container) { found = found || c.Name == name })
		if !found {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(key), name, "container not found"))
		}
	}
	return errs
}
