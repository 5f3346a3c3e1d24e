package resource

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// ForbidPrivileged makes the validation of kinds refuse pods and pod templates with privileged containers, and
// Windows pods with host-process containers. kube-apiserver does the same without --allow-privileged.
func ForbidPrivileged(kinds []*registry.Kind) {
	for _, k := range kinds {
		if !hasPodSpec(k) {
			continue
		}
		// Update functions of subresources are wrapped too: a client can add an ephemeral container to a pod only
		// through its subresource.
		s := &k.Strategy
		s.ValidateCreate, s.ValidateUpdate = andPrivileged(s.ValidateCreate), andPrivileged(s.ValidateUpdate)
		for i := range k.Subresources {
			if part := k.Subresources[i].Update; part != nil {
				next := part.Validate
				part.Validate = func(obj, old registry.Object) field.ErrorList {
					return append(next(obj, old), privileged(obj)...)
				}
			}
		}
	}
}

// validate is the type of functions that validate a new object or an update. old is nil for a new object.
type validate = func(ctx context.Context, obj, old registry.Object) field.ErrorList

// andPrivileged returns a function that also reports privileged containers. next is not nil: every pod is validated.
func andPrivileged(next validate) validate {
	return func(ctx context.Context, obj, old registry.Object) field.ErrorList {
		return append(next(ctx, obj, old), privileged(obj)...)
	}
}

// hasPodSpec reports whether objects of a kind contain the spec of a pod.
func hasPodSpec(k *registry.Kind) bool {
	// An object of the storage version is enough: validation sees objects only in that version.
	v := k.Version(k.Storage.Version)
	if v == nil || v.New == nil {
		return false
	}
	spec, path := podSpecOf(v.New())
	return spec != nil || path != nil
}

// podSpecOf returns the spec of the pod or of the pod template in an object, and its path. The path is nil for objects of other
// kinds; the spec may be nil.
func podSpecOf(obj registry.Object) (*corev1.PodSpec, *field.Path) {
	template := field.NewPath("spec", "template", "spec")
	switch o := obj.(type) {
	case *corev1.Pod:
		return &o.Spec, field.NewPath("spec")
	case *corev1.PodTemplate:
		return &o.Template.Spec, field.NewPath("template", "spec")
	case *corev1.ReplicationController:
		if o.Spec.Template == nil {
			return nil, template
		}
		return &o.Spec.Template.Spec, template
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec, template
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec, template
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec, template
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec, template
	case *batchv1.Job:
		return &o.Spec.Template.Spec, template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec, field.NewPath("spec", "jobTemplate", "spec", "template", "spec")
	}
	return nil, nil
}

// privileged returns an error for each privileged container of an object.
func privileged(obj registry.Object) field.ErrorList {
	spec, path := podSpecOf(obj)
	if spec == nil {
		return nil
	}
	var errs field.ErrorList
	// host is true if the pod or one of its containers is a host-process one. There is one error for all of them,
	// at the spec.
	host := spec.SecurityContext != nil && onHost(spec.SecurityContext.WindowsOptions)
	check := func(list string, i int, c *corev1.SecurityContext) {
		if c == nil {
			return
		}
		if c.Privileged != nil && *c.Privileged {
			errs = append(errs, field.Forbidden(path.Child(list).Index(i).Child("securityContext", "privileged"),
				"disallowed by cluster policy"))
		}
		host = host || onHost(c.WindowsOptions)
	}
	for i := range spec.Containers {
		check("containers", i, spec.Containers[i].SecurityContext)
	}
	for i := range spec.InitContainers {
		check("initContainers", i, spec.InitContainers[i].SecurityContext)
	}
	for i := range spec.EphemeralContainers {
		check("ephemeralContainers", i, spec.EphemeralContainers[i].SecurityContext)
	}
	if host {
		errs = append(errs, field.Forbidden(path, "hostProcess containers are disallowed by cluster policy"))
	}
	return errs
}

// onHost reports whether containers with these options run in the host.
func onHost(o *corev1.WindowsSecurityContextOptions) bool {
	return o != nil && o.HostProcess != nil && *o.HostProcess
}
