package core

import (
	"encoding/json"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// tolerationsAnnotation is older than the field tolerations. It has no effect.
// kube-apiserver validates it all the same, so an invalid value is refused here too.
const tolerationsAnnotation = "scheduler.alpha.kubernetes.io/tolerations"

// validatePodAnnotations validates the annotations of a pod or of a template that have a meaning, or had one before there
// were fields. path is the path of the annotations.
func validatePodAnnotations(annotations map[string]string, s *corev1.PodSpec, rules podRules, path *field.Path) field.ErrorList {
	if len(annotations) == 0 {
		return nil
	}
	var errs field.ErrorList
	// A mirror pod stands for a pod that a kubelet already runs, so the node is known.
	if value, ok := annotations[corev1.MirrorPodAnnotationKey]; ok && s.NodeName == "" {
		errs = append(errs, field.Invalid(path.Key(corev1.MirrorPodAnnotationKey), value,
			"must set spec.nodeName if mirror pod annotation is set"))
	}
	if text := annotations[tolerationsAnnotation]; text != "" {
		if list, err := tolerationsOf(text); err != nil {
			errs = append(errs, field.Invalid(path, tolerationsAnnotation, err.Error()))
		} else {
			errs = append(errs, validateTolerations(list, rules.compareTolerations, path.Child(tolerationsAnnotation))...)
		}
	}
	// The ReplicaSet controller deletes pods of lower cost first when it scales down (KEP-2255).
	errs = append(errs, field.InvalidIf(!rules.anyDeletionCost && !isDeletionCost(annotations), path.Key(corev1.PodDeletionCost),
		annotations[corev1.PodDeletionCost], "must be a 32bit integer")...)
	errs = append(errs, validateSeccompAnnotations(annotations, path)...)
	return append(errs, validateAppArmorAnnotations(annotations, s, path)...)
}

// tolerationsOf decodes the value of tolerationsAnnotation. The messages of its errors have the names of kube-apiserver's Go
// types and of their fields.
func tolerationsOf(text string) ([]corev1.Toleration, error) {
	type TaintEffect string
	type TolerationOperator string
	type Toleration struct {
		Key               string
		Operator          TolerationOperator
		Value             string
		Effect            TaintEffect
		TolerationSeconds *int64
	}
	var list []Toleration
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	out := make([]corev1.Toleration, len(list))
	for i, t := range list {
		out[i] = corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value,
			Effect: corev1.TaintEffect(t.Effect), TolerationSeconds: t.TolerationSeconds}
	}
	return out, nil
}

// isDeletionCost reports whether the cost of deleting a pod is a number of 32 bits without a plus sign or a leading zero. As
// in kube-apiserver, zeros may follow a minus sign. No cost at all is valid.
// So "10", "-10" and "-010" are valid; "+10" and "010" are not.
func isDeletionCost(annotations map[string]string) bool {
	value, ok := annotations[corev1.PodDeletionCost]
	if !ok {
		return true
	}
	if strings.HasPrefix(value, "+") || strings.HasPrefix(value, "0") && value != "0" {
		return false
	}
	_, err := strconv.ParseInt(value, 10, 32)
	return err == nil
}

// validateSeccompAnnotations requires that the deprecated annotations of a pod and of its containers name profiles. The
// containers need not exist.
func validateSeccompAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if profile, ok := annotations[corev1.SeccompPodAnnotationKey]; ok {
		errs = validateSeccompAnnotation(path.Child(corev1.SeccompPodAnnotationKey), profile)
	}
	for _, key := range sortedKeys(annotations) {
		if strings.HasPrefix(key, corev1.SeccompContainerAnnotationKeyPrefix) {
			errs = append(errs, validateSeccompAnnotation(path.Child(key), annotations[key])...)
		}
	}
	return errs
}

// validateSeccompAnnotation accepts unconfined, runtime/default, docker/default and localhost/PATH. The
// annotations have been replaced by the field seccompProfile (KEP-135).
func validateSeccompAnnotation(path *field.Path, profile string) field.ErrorList {
	switch profile {
	case corev1.SeccompProfileNameUnconfined, corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault:
		return nil
	}
	if local, ok := strings.CutPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix); ok {
		return validateLocalPath(path, local)
	}
	return field.ErrorList{field.Invalid(path, profile, "must be a valid seccomp profile")}
}

// validateSeccompMatch requires that the annotations for a pod and for its containers name the profiles in the fields of
// these. path is the path of the pod spec.
// Old clients set only the annotation, new ones only the field. If both are set, a difference would leave open
// which profile the client wanted.
func validateSeccompMatch(annotations map[string]string, s *corev1.PodSpec, path *field.Path) field.ErrorList {
	if len(annotations) == 0 {
		return nil
	}
	var errs field.ErrorList
	compare := func(key string, p *corev1.SeccompProfile, at *field.Path) {
		if annotation, ok := annotations[key]; ok && p != nil {
			errs = append(errs, compareSeccomp(annotation, p, at.Child("securityContext", "seccompProfile"))...)
		}
	}
	if s.SecurityContext != nil {
		compare(corev1.SeccompPodAnnotationKey, s.SecurityContext.SeccompProfile, path)
	}
	eachContainerAt(s, path, func(c *corev1.Container, at *field.Path) {
		if c.SecurityContext != nil {
			compare(corev1.SeccompContainerAnnotationKeyPrefix+c.Name, c.SecurityContext.SeccompProfile, at)
		}
	})
	return errs
}

// compareSeccomp compares an annotation with the profile in a field. docker/default is an old name of
// runtime/default. A profile of an unknown type is refused elsewhere.
func compareSeccomp(annotation string, p *corev1.SeccompProfile, path *field.Path) field.ErrorList {
	same := true
	switch p.Type {
	case corev1.SeccompProfileTypeUnconfined:
		same = annotation == corev1.SeccompProfileNameUnconfined
	case corev1.SeccompProfileTypeRuntimeDefault:
		same = annotation == corev1.SeccompProfileRuntimeDefault || annotation == corev1.DeprecatedSeccompProfileDockerDefault
	case corev1.SeccompProfileTypeLocalhost:
		local, ok := strings.CutPrefix(annotation, corev1.SeccompLocalhostProfileNamePrefix)
		// The types agree, so the error is about the profile and not about the type.
		if ok && (p.LocalhostProfile == nil || *p.LocalhostProfile != local) {
			return field.ErrorList{field.Forbidden(path.Child("localhostProfile"), "seccomp profile in annotation and field must match")}
		}
		same = ok
	}
	return field.ForbiddenIf(!same, path.Child("type"), "seccomp type in annotation and field must match")
}
