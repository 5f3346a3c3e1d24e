package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// A mirror pod represents a static pod, which a kubelet runs from a file without the API server.
// An annotation marks mirror pods.

func isMirrorPod(p *corev1.Pod) bool {
	_, ok := p.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// staticPodForbidden returns an error for something that static pods do not support. Its field
// is shown as "[]", as in kube-apiserver.
func staticPodForbidden(message string) *field.Error {
	return field.Forbidden(field.NewPath(""), message)
}

// validateImmutableAnnotations forbids changes of the annotations that can only be set on
// create: the one of mirror pods, and those with AppArmor profiles.
// A kubelet finds its mirror pods by their annotation, and the AppArmor profile applies to a container when it
// starts.
func validateImmutableAnnotations(p, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("metadata", "annotations")
	var errs field.ErrorList
	for key, value := range old.Annotations {
		if now, ok := p.Annotations[key]; ok && now == value {
			continue
		}
		if kind := immutableAnnotationKind(key); kind != "" {
			errs = append(errs, field.Forbidden(path.Key(key), "may not remove or update "+kind))
		}
	}
	for key := range p.Annotations {
		if _, ok := old.Annotations[key]; ok {
			continue
		}
		if kind := immutableAnnotationKind(key); kind != "" {
			errs = append(errs, field.Forbidden(path.Key(key), "may not add "+kind))
		}
	}
	return errs
}

// immutableAnnotationKind returns a description of an annotation that may not change, "" for
// others.
func immutableAnnotationKind(key string) string {
	switch {
	case key == corev1.MirrorPodAnnotationKey:
		return "mirror pod annotation"
	case strings.HasPrefix(key, appArmorPrefix):
		return "AppArmor annotations"
	}
	return ""
}
