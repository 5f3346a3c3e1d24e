package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// internalSpec has the fields of a PodSpec in the order of kube-apiserver's internal version,
// which appears in error messages. There, the fields for host namespaces are in the security
// context.
type internalSpec struct {
	Volumes                       []corev1.Volume
	InitContainers                []corev1.Container
	Containers                    []corev1.Container
	EphemeralContainers           []corev1.EphemeralContainer
	RestartPolicy                 corev1.RestartPolicy
	TerminationGracePeriodSeconds *int64
	ActiveDeadlineSeconds         *int64
	DNSPolicy                     corev1.DNSPolicy
	NodeSelector                  map[string]string
	ServiceAccountName            string
	AutomountServiceAccountToken  *bool
	NodeName                      string
	SecurityContext               *internalSecurity
	ImagePullSecrets              []corev1.LocalObjectReference
	Hostname                      string
	Subdomain                     string
	SetHostnameAsFQDN             *bool
	Affinity                      *corev1.Affinity
	SchedulerName                 string
	Tolerations                   []corev1.Toleration
	HostAliases                   []corev1.HostAlias
	PriorityClassName             string
	Priority                      *int32
	PreemptionPolicy              *corev1.PreemptionPolicy
	DNSConfig                     *corev1.PodDNSConfig
	ReadinessGates                []corev1.PodReadinessGate
	RuntimeClassName              *string
	Overhead                      corev1.ResourceList
	EnableServiceLinks            *bool
	TopologySpreadConstraints     []corev1.TopologySpreadConstraint
	OS                            *corev1.PodOS
	SchedulingGates               []corev1.PodSchedulingGate
	ResourceClaims                []corev1.PodResourceClaim
	Resources                     *corev1.ResourceRequirements
	HostnameOverride              *string
	SchedulingGroup               *corev1.PodSchedulingGroup
}

type internalSecurity struct {
	HostNetwork              bool
	HostPID                  bool
	HostIPC                  bool
	ShareProcessNamespace    *bool
	HostUsers                *bool
	SELinuxOptions           *corev1.SELinuxOptions
	WindowsOptions           *corev1.WindowsSecurityContextOptions
	RunAsUser                *int64
	RunAsGroup               *int64
	RunAsNonRoot             *bool
	SupplementalGroups       []int64
	SupplementalGroupsPolicy *corev1.SupplementalGroupsPolicy
	FSGroup                  *int64
	FSGroupChangePolicy      *corev1.PodFSGroupChangePolicy
	Sysctls                  []corev1.Sysctl
	SeccompProfile           *corev1.SeccompProfile
	AppArmorProfile          *corev1.AppArmorProfile
	SELinuxChangePolicy      *corev1.PodSELinuxChangePolicy
}

type internalTemplate struct {
	metav1.ObjectMeta
	Spec internalSpec
}

// IsInternalType implements declare.InternalType.
func (internalTemplate) IsInternalType() {}

// InternalPodSpec returns a pod's spec as it appears in error messages.
func InternalPodSpec(s *corev1.PodSpec) any { return declare.Internal(internalPodSpec(s)) }

// InternalTemplate returns a pod template as it appears in error messages.
func InternalTemplate(t *corev1.PodTemplateSpec) any {
	return declare.Internal(internalTemplate{t.ObjectMeta, internalPodSpec(&t.Spec)})
}

// IsInternalType implements declare.InternalType.
func (internalSpec) IsInternalType() {}

// IsInternalType implements declare.InternalType.
func (internalSecurity) IsInternalType() {}

func internalPodSpec(s *corev1.PodSpec) internalSpec {
	c := s.SecurityContext
	if c == nil {
		c = &corev1.PodSecurityContext{}
	}
	return internalSpec{
		Volumes: s.Volumes, InitContainers: s.InitContainers, Containers: s.Containers,
		EphemeralContainers: s.EphemeralContainers,
		RestartPolicy:       s.RestartPolicy, TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds,
		ActiveDeadlineSeconds: s.ActiveDeadlineSeconds, DNSPolicy: s.DNSPolicy, NodeSelector: s.NodeSelector,
		ServiceAccountName: s.ServiceAccountName, AutomountServiceAccountToken: s.AutomountServiceAccountToken,
		NodeName: s.NodeName,
		SecurityContext: &internalSecurity{
			HostNetwork: s.HostNetwork, HostPID: s.HostPID, HostIPC: s.HostIPC,
			ShareProcessNamespace: s.ShareProcessNamespace, HostUsers: s.HostUsers,
			SELinuxOptions: c.SELinuxOptions, WindowsOptions: c.WindowsOptions,
			RunAsUser: c.RunAsUser, RunAsGroup: c.RunAsGroup, RunAsNonRoot: c.RunAsNonRoot,
			SupplementalGroups: c.SupplementalGroups, SupplementalGroupsPolicy: c.SupplementalGroupsPolicy,
			FSGroup: c.FSGroup, FSGroupChangePolicy: c.FSGroupChangePolicy, Sysctls: c.Sysctls,
			SeccompProfile: c.SeccompProfile, AppArmorProfile: c.AppArmorProfile, SELinuxChangePolicy: c.SELinuxChangePolicy,
		},
		ImagePullSecrets: s.ImagePullSecrets, Hostname: s.Hostname, Subdomain: s.Subdomain,
		SetHostnameAsFQDN: s.SetHostnameAsFQDN,
		Affinity:          s.Affinity, SchedulerName: s.SchedulerName, Tolerations: s.Tolerations, HostAliases: s.HostAliases,
		PriorityClassName: s.PriorityClassName, Priority: s.Priority, PreemptionPolicy: s.PreemptionPolicy,
		DNSConfig: s.DNSConfig, ReadinessGates: s.ReadinessGates, RuntimeClassName: s.RuntimeClassName, Overhead: s.Overhead,
		EnableServiceLinks: s.EnableServiceLinks, TopologySpreadConstraints: s.TopologySpreadConstraints, OS: s.OS,
		SchedulingGates: s.SchedulingGates, ResourceClaims: s.ResourceClaims, Resources: s.Resources,
		HostnameOverride: s.HostnameOverride, SchedulingGroup: s.SchedulingGroup,
	}
}
