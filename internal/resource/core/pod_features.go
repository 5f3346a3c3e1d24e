package core

import (
	"slices"

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
		declare.Parts(features.ContainerStopSignals, eachContainer,
			func(c *corev1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.StopSignal != nil }, dropStopSignal),
		declare.Parts(features.EnvFiles, eachContainer, usesFileKey, dropFileKeys),
		declare.Part(features.ContainerRestartRules, usesRestartRules, dropRestartRules),
		declare.Parts(features.ClusterTrustBundleProjection, eachProjection,
			func(p *corev1.VolumeProjection) bool { return p.ClusterTrustBundle != nil },
			func(p *corev1.VolumeProjection) { p.ClusterTrustBundle = nil }),
		declare.Parts(features.PodCertificateRequest, eachProjection,
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
		declare.Parts(features.ResourceHealthStatus, eachContainerStatus,
			func(s *corev1.ContainerStatus) bool { return s.AllocatedResourcesStatus != nil },
			func(s *corev1.ContainerStatus) { s.AllocatedResourcesStatus = nil }),
		declare.Parts(features.ResourceHealthStatusMessage, eachResourceHealth,
			func(h *corev1.ResourceHealth) bool { return h.Message != nil },
			func(h *corev1.ResourceHealth) { h.Message = nil }),
		declare.Parts(features.ImageVolumeWithDigest, eachMountStatus,
			func(m *corev1.VolumeMountStatus) bool { return m.VolumeStatus != nil },
			func(m *corev1.VolumeMountStatus) { m.VolumeStatus = nil }),
	)
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
	return slices.ContainsFunc(c.Env,
		func(v corev1.EnvVar) bool { return v.ValueFrom != nil && v.ValueFrom.FileKeyRef != nil })
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
	return slices.ContainsFunc(s.TopologySpreadConstraints,
		func(c corev1.TopologySpreadConstraint) bool { return len(c.MatchLabelKeys) > 0 })
}

// eachResourceHealth calls f for the health of all resources of all containers.
func eachResourceHealth(s *corev1.PodStatus, f func(*corev1.ResourceHealth)) {
	eachContainerStatus(s, func(c *corev1.ContainerStatus) {
		for i := range c.AllocatedResourcesStatus {
			for j := range c.AllocatedResourcesStatus[i].Resources {
				f(&c.AllocatedResourcesStatus[i].Resources[j])
			}
		}
	})
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

// eachMountStatus calls f for the mounts of all containers.
func eachMountStatus(s *corev1.PodStatus, f func(*corev1.VolumeMountStatus)) {
	eachContainerStatus(s, func(c *corev1.ContainerStatus) {
		for i := range c.VolumeMounts {
			f(&c.VolumeMounts[i])
		}
	})
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
