package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// notForEphemeral is the message about a field of all containers that an ephemeral container (KEP-277) may not
// have.
const notForEphemeral = "cannot be set for an Ephemeral Container"

// validateEphemeralContainers validates the ephemeral containers of a pod or a template by the rules of all containers
// and by their own. Their names must be unique among all containers, and their targets must be other containers.
func (p *podValidator) validateEphemeralContainers(path *field.Path) field.ErrorList {
	if len(p.spec.EphemeralContainers) == 0 {
		return nil
	}
	var errs field.ErrorList
	others := sets.New[string]()
	for _, list := range [][]corev1.Container{p.spec.Containers, p.spec.InitContainers} {
		for i := range list {
			others.Insert(list[i].Name)
		}
	}
	names := others.Clone()
	// Images have the rules of pods in templates too.
	asPod := *p
	asPod.pod = true
	for i := range p.spec.EphemeralContainers {
		c, at := &p.spec.EphemeralContainers[i], path.Index(i)
		errs = append(errs, asPod.validateContainer((*corev1.Container)(&c.EphemeralContainerCommon), at)...)
		errs = append(errs, field.Unique(names, at.Child("name"), c.Name)...)
		if target := c.TargetContainerName; target != "" && !others.Has(target) {
			errs = append(errs, field.NotFound(at.Child("targetContainerName"), target))
		}
		errs = append(errs, validateEphemeralFields(c, at)...)
	}
	return errs
}

// validateEphemeralFields forbids the fields that make a container a part of the pod's work.
// An ephemeral container is for debugging: it has no guaranteed resources, and it is never restarted. Values
// that are set but empty are refused too, such as ports: [].
func validateEphemeralFields(c *corev1.EphemeralContainer, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(path *field.Path, set bool) {
		errs = append(errs, field.ForbiddenIf(set, path, notForEphemeral)...)
	}
	forbid(path.Child("ports"), c.Ports != nil)
	forbid(path.Child("resources"), c.Resources.Limits != nil || c.Resources.Requests != nil || c.Resources.Claims != nil)
	forbid(path.Child("resizePolicy"), c.ResizePolicy != nil)
	forbid(path.Child("restartPolicy"), c.RestartPolicy != nil)
	forbid(path.Child("restartPolicyRules"), c.RestartPolicyRules != nil)
	forbid(path.Child("livenessProbe"), c.LivenessProbe != nil)
	forbid(path.Child("readinessProbe"), c.ReadinessProbe != nil)
	forbid(path.Child("startupProbe"), c.StartupProbe != nil)
	forbid(path.Child("lifecycle"), c.Lifecycle != nil)
	for i, m := range c.VolumeMounts {
		at := path.Child("volumeMounts").Index(i)
		forbid(at.Child("subPath"), m.SubPath != "")
		forbid(at.Child("subPathExpr"), m.SubPathExpr != "")
	}
	return errs
}

// validateEphemeralContainersUpdate validates a write of the subresource, which may only add containers.
// A container cannot be removed or changed, because it may run already. A static pod has no ephemeral
// containers: its kubelet reads the spec from a file, and not from the API.
func validateEphemeralContainersUpdate(p, before *corev1.Pod, rules podRules) field.ErrorList {
	if isMirrorPod(before) {
		return field.ErrorList{staticPodForbidden("static pods do not support ephemeral containers")}
	}
	errs := validateWholePod(p, rules, field.NewPath("spec"))
	path := field.NewPath("spec", "ephemeralContainers")
	names := map[string]*corev1.EphemeralContainer{}
	for i := range p.Spec.EphemeralContainers {
		names[p.Spec.EphemeralContainers[i].Name] = &p.Spec.EphemeralContainers[i]
	}
	for i := range before.Spec.EphemeralContainers {
		c := &before.Spec.EphemeralContainers[i]
		if now := names[c.Name]; now == nil {
			errs = append(errs,
				field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", c.Name)))
		} else if !equality.Semantic.DeepEqual(now, c) {
			errs = append(errs,
				field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%s", c.Name, declare.Diff(c, now))))
		}
	}
	return errs
}
