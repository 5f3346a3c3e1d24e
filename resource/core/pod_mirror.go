package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A mirror pod shows a static pod, which a kubelet runs by itself from a file: it is marked by an
// annotation. What the API server would decide about a pod cannot be decided about it.

func isMirrorPod(p *corev1.Pod) bool {
	_, ok := p.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// validateMirrorPod checks what holds for a mirror pod however it is written.
func validateMirrorPod(p *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	if isMirrorPod(p) && len(p.Spec.ResourceClaims) > 0 {
		errs = append(errs, notOfStaticPods("static pods do not support resource claims"))
	}
	return append(errs, validateMirrorNode(p)...)
}

// validateMirrorNode wants a mirror pod to be on a node.
func validateMirrorNode(p *corev1.Pod) field.ErrorList {
	if !isMirrorPod(p) || p.Spec.NodeName != "" {
		return nil
	}
	at := field.NewPath("metadata", "annotations").Key(corev1.MirrorPodAnnotationKey)
	return field.ErrorList{field.Invalid(at, p.Annotations[corev1.MirrorPodAnnotationKey], "must set spec.nodeName if mirror pod annotation is set")}
}

// notOfStaticPods refuses what is not possible for a static pod. Clients know the field as "[]".
func notOfStaticPods(message string) *field.Error { return field.Forbidden(field.NewPath(""), message) }

// validateKeptAnnotations keeps the annotations that only a new pod may have: that of a mirror pod, and
// those that name AppArmor profiles.
func validateKeptAnnotations(p, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("metadata", "annotations")
	var errs field.ErrorList
	for key, value := range old.Annotations {
		if now, ok := p.Annotations[key]; ok && now == value {
			continue
		}
		if kind := keptAnnotation(key); kind != "" {
			errs = append(errs, field.Forbidden(path.Key(key), "may not remove or update "+kind))
		}
	}
	for key := range p.Annotations {
		if _, ok := old.Annotations[key]; ok {
			continue
		}
		if kind := keptAnnotation(key); kind != "" {
			errs = append(errs, field.Forbidden(path.Key(key), "may not add "+kind))
		}
	}
	return errs
}

// keptAnnotation names the kind of an annotation that may not change, "" for all others.
func keptAnnotation(key string) string {
	switch {
	case key == corev1.MirrorPodAnnotationKey:
		return "mirror pod annotation"
	case strings.HasPrefix(key, appArmorPrefix):
		return "AppArmor annotations"
	}
	return ""
}
