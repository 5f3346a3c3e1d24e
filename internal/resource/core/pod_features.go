package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// PodGates are what the feature gates of a server change in pods and in templates of pods. The zero value has the rules of
// the gates' defaults, and drops nothing.
type PodGates struct {
	fields       declare.Disabled[*corev1.PodSpec]
	rules        podRules
	probeDefault bool // H2CContainerProbe: the protocol of HTTP probes has a default
	// latePodResources means that the resources of a pod as a whole get their defaults when it is created, after mutating
	// admission (PodLevelResourcesFixDefaulting).
	latePodResources bool
	podResources     bool // PodLevelResources
	resizeTogether   bool // InPlacePodLevelResourcesVerticalScaling
	resizeVolumes    bool // InPlacePodVerticalScalingMemoryBackedVolumes
	resizeInit       bool // InPlacePodVerticalScalingInitContainers
	labelBound       bool // a Binding gives its labels to the pod (PodTopologyLabelsAdmission)
	// streamsNeedCreate means that a command, which may begin with a GET, needs the permission to create
	// (AuthorizePodWebsocketUpgradeCreatePermission).
	streamsNeedCreate bool
	kubeletWebSockets bool // kubelets get WebSockets unchanged if they take them (ExtendWebSocketsToKubelet)
	endNomination     bool // a pod with a node has no nominated node (ClearingNominatedNodeNameAfterBinding)
	// emptyResourcesCount means that empty resources of a pod as a whole decide its quality of service class
	// (PodLevelResourcesFixKubeletQOSClass is off).
	emptyResourcesCount bool
}

// podRules are rules of validation that depend on gates, on what the object had before an update, or on its metadata.
type podRules struct {
	compareTolerations bool // allows the operators Lt and Gt (TaintTolerationComparisonOperators)
	hostNetworkUsers   bool // allows user namespaces in the network of the host (UserNamespacesHostNetworkSupport)
	onlyRecursive      bool // allows one policy of SELinux labels only (SELinuxMount is off)
	noRestartAll       bool // forbids to restart all containers (RestartAllContainersOnContainerExits is off)
	noRestartRules     bool // gives containers no restart policies of their own (ContainerRestartRules is off)
	anyDeletionCost    bool // allows an annotation with a deletion cost that is not a number (PodDeletionCost is off)

	noClaims bool // forbids resource claims (mirror pods)

	addresses AddressRules

	// Rules that an object may break because it was stored before the rule existed:
	unnamedImages bool // image volumes without a reference
	sysAdmin      bool // CAP_SYS_ADMIN without privilege escalation
	hostSysctls   bool // sysctls of namespaces of the host
}

// keeping returns the rules for an update: an object keeps what it had. old and annotations are those of the pod or template
// before the update; old is nil for a new object.
func (r podRules) keeping(old *corev1.PodSpec, annotations map[string]string) podRules {
	if old == nil {
		return r
	}
	r.anyDeletionCost = r.anyDeletionCost || !isDeletionCost(annotations)
	r.compareTolerations = r.compareTolerations || slices.ContainsFunc(old.Tolerations, func(t corev1.Toleration) bool {
		return t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt
	})
	r.noRestartRules = r.noRestartRules && !usesRestartRules(old)
	r.hostNetworkUsers = r.hostNetworkUsers || old.HostNetwork && old.HostUsers != nil && !*old.HostUsers
	if c := old.SecurityContext; c != nil && c.SELinuxChangePolicy != nil {
		r.onlyRecursive = false
	}
	r.unnamedImages = slices.ContainsFunc(old.Volumes, func(v corev1.Volume) bool {
		return v.Image != nil && v.Image.Reference == ""
	})
	r.hostSysctls = len(validateHostSysctls(old, nil)) > 0
	eachContainer(old, func(c *corev1.Container) {
		r.sysAdmin = r.sysAdmin || addsSysAdmin(c.SecurityContext)
		for i := range c.RestartPolicyRules {
			// One rule with this action is enough to allow it in the whole object.
			r.noRestartAll = r.noRestartAll &&
				c.RestartPolicyRules[i].Action != corev1.ContainerRestartRuleActionRestartAllContainers
		}
	})
	return r
}

// addsSysAdmin reports whether a container without privilege escalation adds CAP_SYS_ADMIN. As in kube-apiserver, a nil
// allowPrivilegeEscalation counts as false here.
func addsSysAdmin(c *corev1.SecurityContext) bool {
	return c != nil && (c.AllowPrivilegeEscalation == nil || !*c.AllowPrivilegeEscalation) && c.Capabilities != nil &&
		slices.Contains(c.Capabilities.Add, "CAP_SYS_ADMIN")
}

// NewPodGates returns what these gates change.
func NewPodGates(gates features.Gates) PodGates {
	return PodGates{
		fields: disabledPodFields(gates),
		rules: podRules{
			compareTolerations: gates.Enabled(features.TaintTolerationComparisonOperators),
			hostNetworkUsers:   gates.Enabled(features.UserNamespacesHostNetworkSupport),
			onlyRecursive:      !gates.Enabled(features.SELinuxMount),
			noRestartAll:       !gates.Enabled(features.RestartAllContainersOnContainerExits),
			noRestartRules:     !gates.Enabled(features.ContainerRestartRules),
			anyDeletionCost:    !gates.Enabled(features.PodDeletionCost),
			addresses:          NewAddressRules(gates),
		},
		probeDefault:      gates.Enabled(features.H2CContainerProbe),
		podResources:      gates.Enabled(features.PodLevelResources),
		latePodResources:  gates.Enabled(features.PodLevelResourcesFixDefaulting),
		resizeTogether:    gates.Enabled(features.InPlacePodLevelResourcesVerticalScaling),
		resizeVolumes:     gates.Enabled(features.InPlacePodVerticalScalingMemoryBackedVolumes),
		resizeInit:        gates.Enabled(features.InPlacePodVerticalScalingInitContainers),
		labelBound:        gates.Enabled(features.PodTopologyLabelsAdmission),
		streamsNeedCreate: gates.Enabled(features.AuthorizePodWebsocketUpgradeCreatePermission),
		kubeletWebSockets: gates.Enabled(features.ExtendWebSocketsToKubelet),
		endNomination:     gates.Enabled(features.ClearingNominatedNodeNameAfterBinding),
		emptyResourcesCount: gates.Enabled(features.PodLevelResources) &&
			!gates.Enabled(features.PodLevelResourcesFixKubeletQOSClass),
	}
}

// dropNew removes the fields of disabled features from a new pod.
func (g *PodGates) dropNew(p *corev1.Pod) {
	dropObsoleteInitAnnotations(p.Annotations)
	g.fields.DropNew(&p.Spec)
}

// drop removes the fields of disabled features from a pod that replaces old, except those that old has.
func (g *PodGates) drop(p, old *corev1.Pod) {
	dropObsoleteInitAnnotations(p.Annotations)
	g.fields.Drop(&p.Spec, &old.Spec)
}

// DropNew removes the fields of disabled features from the template of a new object.
func (g *PodGates) DropNew(t *corev1.PodTemplateSpec) {
	dropObsoleteInitAnnotations(t.Annotations)
	g.fields.DropNew(&t.Spec)
}

// Drop removes the fields of disabled features from the template of an object that replaces the one with the template
// old, except those that old has.
func (g *PodGates) Drop(t, old *corev1.PodTemplateSpec) {
	dropObsoleteInitAnnotations(t.Annotations)
	g.fields.Drop(&t.Spec, &old.Spec)
}

// disabledPodFields lists the fields of disabled features, each with its gate. A disabled field is dropped
// without an error, so a client can send the same object to servers with and without the feature. An update
// keeps a field that the stored object has: the feature may have been enabled before, and the owner of the
// object did not remove it.
func disabledPodFields(gates features.Gates) declare.Disabled[*corev1.PodSpec] {
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
		declare.Part(features.ImageVolume,
			func(s *corev1.PodSpec) bool { return slices.ContainsFunc(s.Volumes, isImage) }, dropImageVolumes),
		declare.Part(features.EvictionRequestAPI,
			func(s *corev1.PodSpec) bool { return len(s.EvictionResponders) > 0 },
			func(s *corev1.PodSpec) { s.EvictionResponders = nil }),
		declare.Parts(features.EmptyDirVolumeMode, eachVolume,
			func(v *corev1.Volume) bool { return v.EmptyDir != nil && v.EmptyDir.Mode != nil },
			func(v *corev1.Volume) {
				if v.EmptyDir != nil {
					v.EmptyDir.Mode = nil
				}
			}),
		declare.Parts(features.VolumeBindMountOptions, eachMount,
			func(m *corev1.VolumeMount) bool { return len(m.BindMountOptions) > 0 },
			func(m *corev1.VolumeMount) { m.BindMountOptions = nil }),
		declare.Parts(features.H2CContainerProbe, eachHTTPGet,
			func(a *corev1.HTTPGetAction) bool { return a.Protocol != nil },
			func(a *corev1.HTTPGetAction) { a.Protocol = nil }),
		declare.Parts(features.GRPCContainerProbeTLS, eachGRPC,
			func(a *corev1.GRPCAction) bool { return a.Mode != nil },
			func(a *corev1.GRPCAction) { a.Mode = nil }),
		declare.Parts(features.AtomicWriteVolumeUserFields, eachFileOwner,
			func(user **int64) bool { return *user != nil },
			func(user **int64) { *user = nil }),
	)
}

// podStatusGates drop the fields of disabled features from the statuses of pods.
type podStatusGates = declare.Disabled[*corev1.PodStatus]

// newPodStatusGates lists the fields of disabled features in a status, like disabledPodFields.
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
		declare.Part(features.CSIVolumeHealth,
			func(s *corev1.PodStatus) bool { return len(s.VolumeHealth) > 0 },
			func(s *corev1.PodStatus) { s.VolumeHealth = nil }),
	)
}

func isImage(v corev1.Volume) bool { return v.Image != nil }

// dropImageVolumes removes the volumes with images, and their mounts.
// A mount without its volume would be invalid.
func dropImageVolumes(s *corev1.PodSpec) {
	dropped := map[string]bool{}
	for _, v := range s.Volumes {
		dropped[v.Name] = dropped[v.Name] || isImage(v)
	}
	s.Volumes = slices.DeleteFunc(s.Volumes, isImage)
	eachContainer(s, func(c *corev1.Container) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return dropped[m.Name] })
	})
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

// usesRestartRules reports whether the pod has what ContainerRestartRules added (KEP-5307). The policy Always
// of an init container is older: it makes a sidecar (KEP-753).
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

// usesPodResources ignores resources that name nothing: they have no effect, and do not keep the field of a
// disabled feature.
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

func eachVolume(s *corev1.PodSpec, f func(*corev1.Volume)) {
	for i := range s.Volumes {
		f(&s.Volumes[i])
	}
}

// eachMount calls f for the mounts of all containers.
func eachMount(s *corev1.PodSpec, f func(*corev1.VolumeMount)) {
	eachContainer(s, func(c *corev1.Container) {
		for i := range c.VolumeMounts {
			f(&c.VolumeMounts[i])
		}
	})
}

// eachHTTPGet calls f for the HTTP requests of the probes and hooks of all containers.
func eachHTTPGet(s *corev1.PodSpec, f func(*corev1.HTTPGetAction)) {
	visit := func(a *corev1.HTTPGetAction) {
		if a != nil {
			f(a)
		}
	}
	eachContainer(s, func(c *corev1.Container) {
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if p != nil {
				visit(p.HTTPGet)
			}
		}
		if c.Lifecycle == nil {
			return
		}
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				visit(h.HTTPGet)
			}
		}
	})
}

// eachGRPC calls f for the gRPC requests of the probes of all containers.
func eachGRPC(s *corev1.PodSpec, f func(*corev1.GRPCAction)) {
	eachContainer(s, func(c *corev1.Container) {
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if p != nil && p.GRPC != nil {
				f(p.GRPC)
			}
		}
	})
}

// eachFileOwner calls f for the fields with the owners of the files in volumes. It visits the first source that is set
// in a volume, and in each item of a projected volume, because a valid one has no other.
func eachFileOwner(s *corev1.PodSpec, f func(user **int64)) {
	for i := range s.Volumes {
		switch v := &s.Volumes[i]; {
		case v.Secret != nil:
			f(&v.Secret.DefaultUser)
			eachKeyOwner(v.Secret.Items, f)
		case v.ConfigMap != nil:
			f(&v.ConfigMap.DefaultUser)
			eachKeyOwner(v.ConfigMap.Items, f)
		case v.DownwardAPI != nil:
			f(&v.DownwardAPI.DefaultUser)
			eachDownwardOwner(v.DownwardAPI.Items, f)
		case v.Projected != nil:
			f(&v.Projected.DefaultUser)
			for j := range v.Projected.Sources {
				eachProjectedOwner(&v.Projected.Sources[j], f)
			}
		}
	}
}

func eachProjectedOwner(p *corev1.VolumeProjection, f func(user **int64)) {
	switch {
	case p.Secret != nil:
		eachKeyOwner(p.Secret.Items, f)
	case p.DownwardAPI != nil:
		eachDownwardOwner(p.DownwardAPI.Items, f)
	case p.ConfigMap != nil:
		eachKeyOwner(p.ConfigMap.Items, f)
	case p.ServiceAccountToken != nil:
		f(&p.ServiceAccountToken.User)
	case p.ClusterTrustBundle != nil:
		f(&p.ClusterTrustBundle.User)
	case p.PodCertificate != nil:
		f(&p.PodCertificate.User)
	}
}

func eachKeyOwner(items []corev1.KeyToPath, f func(user **int64)) {
	for i := range items {
		f(&items[i].User)
	}
}

func eachDownwardOwner(items []corev1.DownwardAPIVolumeFile, f func(user **int64)) {
	for i := range items {
		f(&items[i].User)
	}
}
