package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validateDeployment validates a Deployment. old is nil for a new one.
func validateDeployment(d, old *appsv1.Deployment, pods *core.PodGates) field.ErrorList {
	path, s := field.NewPath("spec"), &d.Spec
	defer path.Free()
	var before *corev1.PodTemplateSpec
	if old != nil {
		before = &old.Spec.Template
	}
	errs := field.Optional(path.Child("replicas"), s.Replicas, field.NonNegative)
	errs = append(errs, pods.ValidateWorkload(s.Selector, &s.Template, before, "deployment", "invalid label selector", path)...)
	errs = append(errs, validateDeploymentStrategy(&s.Strategy, path.Child("strategy"))...)
	errs = append(errs, field.NonNegative(path.Child("minReadySeconds"), s.MinReadySeconds)...)
	errs = append(errs, field.Optional(path.Child("revisionHistoryLimit"), s.RevisionHistoryLimit, field.NonNegative)...)
	if p := s.ProgressDeadlineSeconds; p != nil {
		errs = append(errs, field.NonNegative(path.Child("progressDeadlineSeconds"), *p)...)
		// A new pod is available only after minReadySeconds: a shorter deadline would pass before each rollout.
		errs = append(errs, field.InvalidIf(*p <= s.MinReadySeconds, path.Child("progressDeadlineSeconds"), *p,
			"must be greater than minReadySeconds")...)
	}
	return errs
}

// validateDeploymentStrategy refuses rollingUpdate with the type Recreate. A patch of the type of a Deployment
// must therefore remove rollingUpdate, of which the stored object has the defaults: a merge patch by null, a
// strategic merge patch also by the directive $retainKeys.
func validateDeploymentStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{
				field.Forbidden(path.Child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'")}
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		if s.RollingUpdate == nil {
			return field.ErrorList{field.Required(path.Child("rollingUpdate"), "this should be defaulted and never be nil")}
		}
		return validateRollingDeployment(s.RollingUpdate, path.Child("rollingUpdate"))
	default:
		return field.ErrorList{
			field.NotSupported(path, declare.Internal(s),
				[]appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
	}
	return nil
}

// validateRollingDeployment requires that a rollout may create one pod more or have one pod less. Only literal
// zeros (0 and "0%") are refused: if both percentages round to 0 pods, the controller uses 1 for maxUnavailable.
// maxSurge may be more than 100%.
func validateRollingDeployment(r *appsv1.RollingUpdateDeployment, path *field.Path) field.ErrorList {
	unavailable, surge := ptr.Deref(r.MaxUnavailable, intstr.IntOrString{}), ptr.Deref(r.MaxSurge, intstr.IntOrString{})
	errs := core.ValidateIntOrPercent(unavailable, path.Child("maxUnavailable"))
	errs = append(errs, core.ValidateIntOrPercent(surge, path.Child("maxSurge"))...)
	errs = append(errs, field.InvalidIf(core.IntOrPercentValue(unavailable) == 0 && core.IntOrPercentValue(surge) == 0,
		path.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0")...)
	return append(errs, core.ValidateAtMost100Percent(unavailable, path.Child("maxUnavailable"))...)
}

// validateReplicaSet validates a ReplicaSet. old is nil for a new one.
func validateReplicaSet(r, old *appsv1.ReplicaSet, pods *core.PodGates) field.ErrorList {
	path, s := field.NewPath("spec"), &r.Spec
	defer path.Free()
	var before *corev1.PodTemplateSpec
	if old != nil {
		before = &old.Spec.Template
	}
	errs := field.Optional(path.Child("replicas"), s.Replicas, field.NonNegative)
	errs = append(errs, field.NonNegative(path.Child("minReadySeconds"), s.MinReadySeconds)...)
	// Messages about the selector of a ReplicaSet name a deployment, as in kube-apiserver.
	return append(errs, pods.ValidateWorkload(s.Selector, &s.Template, before, "deployment", "invalid label selector", path)...)
}

// validateDaemonSet validates a DaemonSet. old is nil for a new one.
func validateDaemonSet(d, old *appsv1.DaemonSet, pods *core.PodGates) field.ErrorList {
	path, s := field.NewPath("spec"), &d.Spec
	defer path.Free()
	var before *corev1.PodTemplateSpec
	if old != nil {
		before = &old.Spec.Template
	}
	// "-" means that a missing selector has no error of its own.
	errs := pods.ValidateWorkload(s.Selector, &s.Template, before, "daemonset", "-", path)
	errs = append(errs, field.NonNegative(path.Child("minReadySeconds"), s.MinReadySeconds)...)
	errs = append(errs, field.Optional(path.Child("revisionHistoryLimit"), s.RevisionHistoryLimit, field.NonNegative)...)
	path = path.Child("updateStrategy")
	switch u := s.UpdateStrategy; u.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
	case appsv1.RollingUpdateDaemonSetStrategyType:
		if u.RollingUpdate == nil {
			return append(errs, field.Required(path.Child("rollingUpdate"), ""))
		}
		errs = append(errs, validateRollingDaemonSet(u.RollingUpdate, path.Child("rollingUpdate"))...)
	default:
		errs = append(errs, field.NotSupported(path, declare.Internal(u),
			[]appsv1.DaemonSetUpdateStrategyType{
				appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType}))
	}
	return errs
}

// validateRollingDaemonSet requires that one of the two values is 0 and the other is not. A node has one pod of
// the set: an update either removes the old pod first (maxUnavailable) or creates the new one first (maxSurge,
// KEP-1591). 100% of the nodes is the limit of both.
func validateRollingDaemonSet(r *appsv1.RollingUpdateDaemonSet, path *field.Path) field.ErrorList {
	unavailable, surge := ptr.Deref(r.MaxUnavailable, intstr.IntOrString{}), ptr.Deref(r.MaxSurge, intstr.IntOrString{})
	errs := core.ValidateIntOrPercent(unavailable, path.Child("maxUnavailable"))
	errs = append(errs, core.ValidateAtMost100Percent(unavailable, path.Child("maxUnavailable"))...)
	errs = append(errs, core.ValidateIntOrPercent(surge, path.Child("maxSurge"))...)
	errs = append(errs, core.ValidateAtMost100Percent(surge, path.Child("maxSurge"))...)
	hasUnavailable, hasSurge := core.IntOrPercentValue(unavailable) != 0, core.IntOrPercentValue(surge) != 0
	errs = append(errs, field.InvalidIf(hasUnavailable && hasSurge, path.Child("maxSurge"), r.MaxSurge,
		"may not be set when maxUnavailable is non-zero")...)
	return append(errs, field.RequiredIf(!hasUnavailable && !hasSurge, path.Child("maxUnavailable"),
		"cannot be 0 when maxSurge is 0")...)
}

// validateStatefulSet validates a set. old is nil for a new one. recreate allows the update strategy Recreate.
func validateStatefulSet(set, old *appsv1.StatefulSet, recreate bool, pods *core.PodGates) field.ErrorList {
	path, s := field.NewPath("spec"), &set.Spec
	defer path.Free()
	var errs field.ErrorList
	switch s.PodManagementPolicy {
	case "":
		errs = append(errs, field.Required(path.Child("podManagementPolicy"), ""))
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	default:
		errs = append(errs,
			field.Invalid(path.Child("podManagementPolicy"), s.PodManagementPolicy, "must be 'OrderedReady' or 'Parallel'"))
	}
	errs = append(errs, validateStatefulSetStrategy(&s.UpdateStrategy, recreate, path.Child("updateStrategy"))...)
	if p := s.PersistentVolumeClaimRetentionPolicy; p != nil {
		at := path.Child("persistentVolumeClaimRetentionPolicy")
		errs = append(errs, validateRetentionPolicy(p.WhenDeleted, at.Child("whenDeleted"))...)
		errs = append(errs, validateRetentionPolicy(p.WhenScaled, at.Child("whenScaled"))...)
	}
	errs = append(errs, field.Optional(path.Child("replicas"), s.Replicas, field.NonNegative)...)
	errs = append(errs, field.NonNegative(path.Child("minReadySeconds"), s.MinReadySeconds)...)
	if o := s.Ordinals; o != nil {
		errs = append(errs, field.NonNegative(path.Child("ordinals", "start"), o.Start)...)
	}
	var before *corev1.PodTemplateSpec
	if old != nil {
		before = &old.Spec.Template
	}
	template := s.Template.DeepCopy()
	// kube-apiserver does not validate them, because pods get serviceName as subdomain, and a hostname of their own.
	template.Spec.Subdomain, template.Spec.Hostname = "", ""
	// Containers may mount claim templates, so they must be among the volumes when mounts are validated.
	template.Spec.Volumes = withClaimVolumes(template.Spec.Volumes, s.VolumeClaimTemplates)
	return append(errs, pods.ValidateWorkload(s.Selector, template, before, "statefulset", "", path)...)
}

// validateImmutableFields validates the fields that an update cannot change.
// It is only called for a new set: an update could not correct an invalid value that is stored.
func validateImmutableFields(set *appsv1.StatefulSet) field.ErrorList {
	path, s := field.NewPath("spec"), &set.Spec
	errs := field.IfSet(path.Child("serviceName"), s.ServiceName, field.DNSLabel)
	for i := range s.VolumeClaimTemplates {
		errs = append(errs, core.ValidatePersistentVolumeClaimSpec(&s.VolumeClaimTemplates[i].Spec,
			path.Child("volumeClaimTemplates").Index(i).Child("spec"))...)
	}
	return errs
}

// withClaimVolumes returns the volumes of the set's pods. A volume of a claim template
// replaces a volume of the same name.
func withClaimVolumes(volumes []corev1.Volume, claims []corev1.PersistentVolumeClaim) []corev1.Volume {
	var all []corev1.Volume
	names := map[string]bool{}
	for i := range claims {
		name := claims[i].Name
		if names[name] {
			continue
		}
		names[name] = true
		all = append(all, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
	for _, v := range volumes {
		if !names[v.Name] {
			all = append(all, v)
		}
	}
	return all
}

func validateRetentionPolicy(p appsv1.PersistentVolumeClaimRetentionPolicyType, path *field.Path) field.ErrorList {
	return field.OneOf(path, p, appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		appsv1.DeletePersistentVolumeClaimRetentionPolicyType)
}

// shownStrategy returns a strategy as errors show it: with a partition.
func shownStrategy(u *appsv1.StatefulSetUpdateStrategy) *appsv1.StatefulSetUpdateStrategy {
	u = u.DeepCopy()
	if u.RollingUpdate != nil {
		declare.Pointer(&u.RollingUpdate.Partition, 0)
	}
	return u
}

// validateStatefulSetStrategy validates the update strategy. Unlike for a Deployment, there is no maxSurge,
// because two pods cannot have the same name. Each update removes the old pod first, so maxUnavailable cannot be
// 0.
func validateStatefulSetStrategy(u *appsv1.StatefulSetUpdateStrategy, recreate bool, path *field.Path) field.ErrorList {
	switch {
	case u.Type == "":
		return field.ErrorList{field.Required(path, "")}
	case u.Type == appsv1.OnDeleteStatefulSetStrategyType, u.Type == appsv1.RecreateStatefulSetStrategyType && recreate:
		if u.RollingUpdate != nil {
			return field.ErrorList{
				field.Invalid(path.Child("rollingUpdate"), declare.Internal(shownStrategy(u).RollingUpdate),
					"only allowed for updateStrategy 'RollingUpdate'")}
		}
		return nil
	case u.Type == appsv1.RollingUpdateStatefulSetStrategyType:
	case recreate:
		return field.ErrorList{field.Invalid(path, declare.Internal(shownStrategy(u)),
			"must be 'RollingUpdate', 'OnDelete', or 'Recreate'")}
	default:
		return field.ErrorList{field.Invalid(path, declare.Internal(shownStrategy(u)), "must be 'RollingUpdate' or 'OnDelete'")}
	}
	if u.RollingUpdate == nil {
		return nil
	}
	path = path.Child("rollingUpdate")
	errs := field.Optional(path.Child("partition"), u.RollingUpdate.Partition, field.NonNegative)
	if n := u.RollingUpdate.MaxUnavailable; n != nil {
		at := path.Child("maxUnavailable")
		errs = append(errs, core.ValidateIntOrPercent(*n, at)...)
		errs = append(errs, field.InvalidIf(core.IntOrPercentValue(*n) == 0, at, *n, "cannot be 0")...)
		errs = append(errs, core.ValidateAtMost100Percent(*n, at)...)
	}
	return errs
}
