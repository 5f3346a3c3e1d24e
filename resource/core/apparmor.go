package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	appArmorPrefix         = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	appArmorRuntimeDefault = corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	appArmorUnconfined     = corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	appArmorLocalhost      = corev1.DeprecatedAppArmorBetaProfileNamePrefix
)

// syncAppArmor brings the AppArmor profiles of a new pod's containers and the
// annotations that older kubelets read in line. The field wins.
func syncAppArmor(p *corev1.Pod) {
	if p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return
	}
	var whole *corev1.AppArmorProfile
	if p.Spec.SecurityContext != nil {
		whole = p.Spec.SecurityContext.AppArmorProfile
	}
	sync := func(name string, context **corev1.SecurityContext) {
		var own *corev1.AppArmorProfile
		if *context != nil {
			own = (*context).AppArmorProfile
		}
		annotation, annotated := p.Annotations[appArmorPrefix+name]
		switch effective := firstProfile(own, whole); {
		case annotated && own == nil && (whole == nil || annotation != appArmorAnnotation(whole)):
			profile := appArmorProfile(annotation)
			if profile == nil {
				return
			}
			if *context == nil {
				*context = &corev1.SecurityContext{}
			}
			(*context).AppArmorProfile = profile
		case !annotated && effective != nil:
			if value := appArmorAnnotation(effective); value != "" {
				if p.Annotations == nil {
					p.Annotations = map[string]string{}
				}
				p.Annotations[appArmorPrefix+name] = value
			}
		}
	}
	for i := range p.Spec.InitContainers {
		sync(p.Spec.InitContainers[i].Name, &p.Spec.InitContainers[i].SecurityContext)
	}
	for i := range p.Spec.Containers {
		sync(p.Spec.Containers[i].Name, &p.Spec.Containers[i].SecurityContext)
	}
}

func firstProfile(a, b *corev1.AppArmorProfile) *corev1.AppArmorProfile {
	if a != nil {
		return a
	}
	return b
}

func appArmorAnnotation(p *corev1.AppArmorProfile) string {
	switch p.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return appArmorRuntimeDefault
	case corev1.AppArmorProfileTypeUnconfined:
		return appArmorUnconfined
	case corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile != nil {
			return appArmorLocalhost + *p.LocalhostProfile
		}
	}
	return ""
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
