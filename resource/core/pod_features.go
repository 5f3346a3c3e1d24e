package core

import corev1 "k8s.io/api/core/v1"

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

func eachProjection(s *corev1.PodSpec, f func(*corev1.VolumeProjection)) {
	for i := range s.Volumes {
		if p := s.Volumes[i].Projected; p != nil {
			for j := range p.Sources {
				f(&p.Sources[j])
			}
		}
	}
}
