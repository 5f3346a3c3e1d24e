package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DropDisabledPodFields removes the fields of disabled features from the spec of a pod or a
// template, unless old already uses them: stop signals, trust bundles and pod certificates in
// projected volumes, and scheduling groups. old is nil on create.
func DropDisabledPodFields(s, old *corev1.PodSpec) {
	if old == nil {
		old = &corev1.PodSpec{}
	}
	if !usesStopSignal(old) {
		eachContainer(s, func(c *corev1.Container) {
			if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
				return
			}
			c.Lifecycle.StopSignal = nil
			if *c.Lifecycle == (corev1.Lifecycle{}) {
				c.Lifecycle = nil
			}
		})
	}
	bundles, certificates := false, false
	eachProjection(old, func(p *corev1.VolumeProjection) {
		bundles = bundles || p.ClusterTrustBundle != nil
		certificates = certificates || p.PodCertificate != nil
	})
	eachProjection(s, func(p *corev1.VolumeProjection) {
		if !bundles {
			p.ClusterTrustBundle = nil
		}
		if !certificates {
			p.PodCertificate = nil
		}
	})
	if old.SchedulingGroup == nil {
		s.SchedulingGroup = nil
	}
}

// dropDisabledStatusFields removes the fields of disabled features from the status of a pod, unless old already uses
// them: claims for allocatable resources of nodes, and digests of images in volumes.
func dropDisabledStatusFields(s, old *corev1.PodStatus) {
	if old.NodeAllocatableResourceClaimStatuses == nil {
		s.NodeAllocatableResourceClaimStatuses = nil
	}
	used := false
	eachMountStatus(old, func(m *corev1.VolumeMountStatus) { used = used || m.VolumeStatus != nil })
	if !used {
		eachMountStatus(s, func(m *corev1.VolumeMountStatus) { m.VolumeStatus = nil })
	}
}

func eachMountStatus(s *corev1.PodStatus, f func(*corev1.VolumeMountStatus)) {
	for _, list := range [][]corev1.ContainerStatus{
		s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses,
	} {
		for i := range list {
			for j := range list[i].VolumeMounts {
				f(&list[i].VolumeMounts[j])
			}
		}
	}
}

func usesStopSignal(s *corev1.PodSpec) bool {
	used := false
	eachContainer(s, func(c *corev1.Container) { used = used || c.Lifecycle != nil && c.Lifecycle.StopSignal != nil })
	return used
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
