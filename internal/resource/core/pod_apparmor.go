package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

const (
	appArmorPrefix         = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	appArmorRuntimeDefault = corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	appArmorUnconfined     = corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	appArmorLocalhost      = corev1.DeprecatedAppArmorBetaProfileNamePrefix
)

// syncAppArmor sets the AppArmor profiles of a new pod's containers from the deprecated
// annotations, unless the fields are set. It returns warnings about these annotations.
// The annotations were the only way before KEP-24 added the fields. An annotation for a container without a
// field is copied, so readers of the new fields see it. A pod for Windows has no AppArmor, and its annotations
// have no effect.
func syncAppArmor(p *corev1.Pod) []string {
	if p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return nil
	}
	var w warnings
	eachContainer(&p.Spec, func(c *corev1.Container) {
		annotation, ok := p.Annotations[appArmorPrefix+c.Name]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			return
		}
		profile := appArmorProfile(annotation)
		whole := p.Spec.SecurityContext
		// The pod as a whole has the same profile, so the container needs none of its own.
		if profile != nil && whole != nil && equality.Semantic.DeepEqual(whole.AppArmorProfile, profile) {
			return
		}
		w.appArmor(field.NewPath("metadata", "annotations"), c.Name)
		if profile == nil {
			return
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
	})
	return w
}

// appArmor warns about the annotation for a container.
func (w *warnings) appArmor(annotations *field.Path, container string) {
	w.add(annotations.Key(appArmorPrefix+container), `deprecated since v1.30; use the "appArmorProfile" field instead`)
}

// templateAppArmor warns about the annotations of a pod template for containers that have no profile.
func (w *warnings) templateAppArmor(path *field.Path, s *corev1.PodSpec, annotations map[string]string) {
	eachContainer(s, func(c *corev1.Container) {
		if _, ok := annotations[appArmorPrefix+c.Name]; ok && effectiveAppArmor(s, c) == nil {
			w.appArmor(path, c.Name)
		}
	})
}

// effectiveAppArmor returns the profile in the fields of a container or of its pod, nil if there is none.
func effectiveAppArmor(s *corev1.PodSpec, c *corev1.Container) *corev1.AppArmorProfile {
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return c.SecurityContext.AppArmorProfile
	}
	if s.SecurityContext != nil {
		return s.SecurityContext.AppArmorProfile
	}
	return nil
}

// appArmorProfile converts an annotation: unconfined, runtime/default or localhost/NAME. It returns nil for
// others.
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

// validateAppArmorAnnotations requires that the deprecated annotations name containers of the pod, and profiles.
func validateAppArmorAnnotations(annotations map[string]string, s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range sortedKeys(annotations) {
		name, ok := strings.CutPrefix(key, appArmorPrefix)
		if !ok {
			continue
		}
		profile, found := annotations[key], false
		eachContainer(s, func(c *corev1.Container) { found = found || c.Name == name })
		errs = append(errs, field.InvalidIf(!found, path.Key(key), name, "container not found")...)
		known := profile == "" || profile == appArmorUnconfined || profile == appArmorRuntimeDefault
		if !known && !strings.HasPrefix(profile, appArmorLocalhost) {
			errs = append(errs, field.Invalid(path.Key(key), profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile)))
		}
	}
	return errs
}

func hasAppArmor(annotations map[string]string) bool {
	for key := range annotations {
		if strings.HasPrefix(key, appArmorPrefix) {
			return true
		}
	}
	return false
}

// validateAppArmorMatch requires that the annotation for a container and its field name the same profile. path is the path
// of the pod spec.
func validateAppArmorMatch(annotations map[string]string, s *corev1.PodSpec, path *field.Path) field.ErrorList {
	if !hasAppArmor(annotations) || s.OS != nil && s.OS.Name == corev1.Windows {
		return nil
	}
	var errs field.ErrorList
	eachContainerAt(s, path, func(c *corev1.Container, at *field.Path) {
		annotation, ok := annotations[appArmorPrefix+c.Name]
		profile := effectiveAppArmor(s, c)
		if !ok || profile == nil {
			return
		}
		at = at.Child("securityContext", "appArmorProfile")
		local, isLocal := strings.CutPrefix(annotation, appArmorLocalhost)
		same := true
		switch profile.Type {
		case corev1.AppArmorProfileTypeUnconfined:
			same = annotation == appArmorUnconfined
		case corev1.AppArmorProfileTypeRuntimeDefault:
			same = annotation == appArmorRuntimeDefault
		case corev1.AppArmorProfileTypeLocalhost:
			same = isLocal
			if p := profile.LocalhostProfile; isLocal && (p == nil || *p != local) {
				errs = append(errs,
					field.Forbidden(at.Child("localhostProfile"), "apparmor profile in annotation and field must match"))
			}
		}
		errs = append(errs, field.ForbiddenIf(!same, at.Child("type"),
			"apparmor type in annotation and field must match")...)
	})
	return errs
}
