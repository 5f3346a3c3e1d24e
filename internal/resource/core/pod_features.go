package core

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// PodGates drop the fields of disabled features from the specs of pods and templates.
type PodGates = declare.Disabled[*corev1.PodSpec]

// NewPodGates returns what has to be dropped with these gates.
func NewPodGates(gates features.Gates) PodGates {
	return declare.DisabledOf(gates,
		gatedContainers(features.ContainerStopSignals,
			func(c *corev1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.StopSignal != nil }, dropStopSignal),
		gatedContainers(features.EnvFiles, usesFileKey, dropFileKeys),
		declare.Part(features.ContainerRestartRules, usesRestartRules, dropRestartRules),
		gatedProjections(features.ClusterTrustBundleProjection,
			func(p *corev1.VolumeProjection) bool { return p.ClusterTrustBundle != nil },
			func(p *corev1.VolumeProjection) { p.ClusterTrustBundle = nil }),
		gatedProjections(features.PodCertificateRequest,
			func(p *corev1.VolumeProjection) bool { return p.PodCertificate != nil },
			func(p *corev1.VolumeProjection) { p.PodCertificate = nil }),
		declare.Part(features.GenericWorkload,
			func(s *corev1.PodSpec) bool { return s.SchedulingGroup != nil },
			func(s *corev1.PodSpec) { s.SchedulingGroup = nil }),
		declare.Part(features.HostnameOverride,
			func(s *corev1.PodSpec) bool { return s.HostnameOverride != nil },
			func(s *corev1.PodSpec) { s.HostnameOverride = nil }),
		declare.Part(features.PodLevelResources, usesPodResources,
			func(s *corev1.PodSpec) { s.Resources = nil }),
		declare.Part(features.MatchLabelKeysInPodTopologySpread, usesSpreadKeys,
			func(s *corev1.PodSpec) {
				for i := range s.TopologySpreadConstraints {
					s.TopologySpreadConstraints[i].MatchLabelKeys = nil
				}
			}),
	)
}

// podStatusGates drop the fields of disabled features from the statuses of pods.
type podStatusGates = declare.Disabled[*corev1.PodStatus]

func newPodStatusGates(gates features.Gates) podStatusGates {
	return declare.DisabledOf(gates,
		declare.Part(features.DRANodeAllocatableResources,
			func(s *corev1.PodStatus) bool { return s.NodeAllocatableResourceClaimStatuses != nil },
			func(s *corev1.PodStatus) { s.NodeAllocatableResourceClaimStatuses = nil }),
		declare.Part(features.DRAExtendedResource,
			func(s *corev1.PodStatus) bool { return s.ExtendedResourceClaimStatus != nil },
			func(s *corev1.PodStatus) { s.ExtendedResourceClaimStatus = nil }),
		declare.Part(features.InPlacePodLevelResourcesVerticalScaling,
			func(s *corev1.PodStatus) bool { return s.Resources != nil || s.AllocatedResources != nil },
			func(s *corev1.PodStatus) { s.Resources, s.AllocatedResources = nil, nil }),
		gatedStatuses(features.ResourceHealthStatus,
			func(s *corev1.ContainerStatus) bool { return s.AllocatedResourcesStatus != nil },
			func(s *corev1.ContainerStatus) { s.AllocatedResourcesStatus = nil }),
		gatedStatuses(features.ResourceHealthStatusMessage, usesHealthMessage, dropHealthMessages),
		gatedStatuses(features.ImageVolumeWithDigest, func(s *corev1.ContainerStatus) bool {
			used := false
			eachMountStatus(s, func(m *corev1.VolumeMountStatus) { used = used || m.VolumeStatus != nil })
			return used
		}, func(s *corev1.ContainerStatus) {
			eachMountStatus(s, func(m *corev1.VolumeMountStatus) { m.VolumeStatus = nil })
		}),
	)
}

// gatedContainers is a part of containers.
func gatedContainers(
	gate string, used func(*corev1.Container) bool, drop func(*corev1.Container),
) declare.Gated[*corev1.PodSpec] {
	return declare.Part(gate, func(s *corev1.PodSpec) bool {
		found := false
		eachContainer(s, func(c *corev1.Container) { found = found || used(c) })
		return found
	}, func(s *corev1.PodSpec) { eachContainer(s, drop) })
}

// gatedProjections is a part of projected volumes.
func gatedProjections(
	gate string, used func(*corev1.VolumeProjection) bool, drop func(*corev1.VolumeProjection),
) declare.Gated[*corev1.PodSpec] {
	return declare.Part(gate, func(s *corev1.PodSpec) bool {
		found := false
		eachProjection(s, func(p *corev1.VolumeProjection) { found = found || used(p) })
		return found
	}, func(s *corev1.PodSpec) { eachProjection(s, drop) })
}

// gatedStatuses is a part of the statuses of containers.
func gatedStatuses(
	gate string, used func(*corev1.ContainerStatus) bool, drop func(*corev1.ContainerStatus),
) declare.Gated[*corev1.PodStatus] {
	return declare.Part(gate, func(s *corev1.PodStatus) bool {
		found := false
		eachContainerStatus(s, func(s *corev1.ContainerStatus) { found = found || used(s) })
		return found
	}, func(s *corev1.PodStatus) { eachContainerStatus(s, drop) })
}

func dropStopSignal(c *corev1.Container) {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return
	}
	c.Lifecycle.StopSignal = nil
	if *c.Lifecycle == (corev1.Lifecycle{}) {
		c.Lifecycle = nil
	}
}

func usesFileKey(c *corev1.Container) bool {
	for i := range c.Env {
		if v := c.Env[i].ValueFrom; v != nil && v.FileKeyRef != nil {
			return true
		}
	}
	return false
}

func dropFileKeys(c *corev1.Container) {
	for i := range c.Env {
		if v := c.Env[i].ValueFrom; v != nil {
			v.FileKeyRef = nil
		}
	}
}

// isRestartRule reports whether a container has a restart policy of its own, other than the policy of a sidecar.
func isRestartRule(policy *corev1.ContainerRestartPolicy) bool {
	return policy != nil && *policy != corev1.ContainerRestartPolicyAlways
}

func usesRestartRules(s *corev1.PodSpec) bool {
	for i := range s.InitContainers {
		if c := &s.InitContainers[i]; isRestartRule(c.RestartPolicy) || len(c.RestartPolicyRules) > 0 {
			return true
		}
	}
	for i := range s.Containers {
		if s.Containers[i].RestartPolicy != nil {
			return true
		}
	}
	return false
}

func dropRestartRules(s *corev1.PodSpec) {
	for i := range s.InitContainers {
		if isRestartRule(s.InitContainers[i].RestartPolicy) {
			s.InitContainers[i].RestartPolicy = nil
		}
		s.InitContainers[i].RestartPolicyRules = nil
	}
	for i := range s.Containers {
		s.Containers[i].RestartPolicy, s.Containers[i].RestartPolicyRules = nil, nil
	}
	for i := range s.EphemeralContainers {
		s.EphemeralContainers[i].RestartPolicy, s.EphemeralContainers[i].RestartPolicyRules = nil, nil
	}
}

func usesPodResources(s *corev1.PodSpec) bool {
	return s.Resources != nil && (len(s.Resources.Requests) > 0 || len(s.Resources.Limits) > 0)
}

func usesSpreadKeys(s *corev1.PodSpec) bool {
	for i := range s.TopologySpreadConstraints {
		if len(s.TopologySpreadConstraints[i].MatchLabelKeys) > 0 {
			return true
		}
	}
	return false
}

func usesHealthMessage(s *corev1.ContainerStatus) bool {
	for i := range s.AllocatedResourcesStatus {
		for j := range s.AllocatedResourcesStatus[i].Resources {
			if s.AllocatedResourcesStatus[i].Resources[j].Message != nil {
				return true
			}
		}
	}
	return false
}

func dropHealthMessages(s *corev1.ContainerStatus) {
	for i := range s.AllocatedResourcesStatus {
		for j := range s.AllocatedResourcesStatus[i].Resources {
			s.AllocatedResourcesStatus[i].Resources[j].Message = nil
		}
	}
}

// eachContainerStatus calls f for the statuses of all containers: init, regular and ephemeral ones.
func eachContainerStatus(s *corev1.PodStatus, f func(*corev1.ContainerStatus)) {
	for _, list := range [][]corev1.ContainerStatus{
		s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses,
	} {
		for i := range list {
			f(&list[i])
		}
	}
}

func eachMountStatus(s *corev1.ContainerStatus, f func(*corev1.VolumeMountStatus)) {
	for i := range s.VolumeMounts {
		f(&s.VolumeMounts[i])
	}
}

// eachContainer calls f for all containers: init, regular and ephemeral ones.
func eachContainer(s *corev1.PodSpec, f func(*corev1.Container)) {
	for i := range s.InitContainers {
		f(&s.InitContainers[i])
	}
	for i := range s.Containers {
		f(&s.Containers[i])
	}
	for i := range s.EphemeralContainers {
		f((*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// eachContainerAt calls f for all containers and their paths. path is that of the spec.
func eachContainerAt(s *corev1.PodSpec, path *field.Path, f func(*corev1.Container, *field.Path)) {
	for i := range s.InitContainers {
		f(&s.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range s.Containers {
		f(&s.Containers[i], path.Child("containers").Index(i))
	}
	for i := range s.EphemeralContainers {
		f((*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon), path.Child("ephemeralContainers").Index(i))
	}
}

func eachProjection(s *corev1.PodSpec, f func(*corev1.VolumeProjection)) {
	for i := range s.Volumes {
		if p := s.Volumes[i].Projected; p != nil {
			for j := range p.Sources {
				f(&p.Sources[j])
			}
		}
	}
}
