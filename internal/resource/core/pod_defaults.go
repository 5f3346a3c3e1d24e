package core

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// obsoleteInitAnnotations contained init containers before there was a field for them. The
// server removes them from pods and pod templates.
var obsoleteInitAnnotations = []string{
	"pod.beta.kubernetes.io/init-containers",
	"pod.alpha.kubernetes.io/init-containers",
	"pod.beta.kubernetes.io/init-container-statuses",
	"pod.alpha.kubernetes.io/init-container-statuses",
}

func dropObsoleteInitAnnotations(annotations map[string]string) {
	for _, name := range obsoleteInitAnnotations {
		delete(annotations, name)
	}
}

// DefaultPodTemplate sets the defaults of a pod template in a workload. Unlike defaultPod, it
// does not set requests to limits and does not fill in host ports.
func DefaultPodTemplate(t *corev1.PodTemplateSpec) {
	DefaultPodSpec(&t.Spec)
}

// DefaultPodSpec sets the defaults that pods and pod templates have in common.
// serviceAccount is the old name of serviceAccountName. Both always have the same value, for clients that know
// only one of them.
func DefaultPodSpec(s *corev1.PodSpec) {
	declare.Value(&s.ServiceAccountName, s.DeprecatedServiceAccount)
	s.DeprecatedServiceAccount = s.ServiceAccountName
	declare.Value(&s.DNSPolicy, corev1.DNSClusterFirst)
	declare.Value(&s.RestartPolicy, corev1.RestartPolicyAlways)
	if s.SecurityContext == nil {
		s.SecurityContext = &corev1.PodSecurityContext{}
	}
	declare.Pointer(&s.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	declare.Value(&s.SchedulerName, corev1.DefaultSchedulerName)
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i])
	}
	for i := range s.InitContainers {
		defaultContainer(&s.InitContainers[i])
	}
	for i := range s.Containers {
		defaultContainer(&s.Containers[i])
	}
	for i := range s.EphemeralContainers {
		defaultContainer((*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon))
	}
	declare.RoundUp(s.Overhead)
	if r := s.Resources; r != nil {
		declare.RoundUp(r.Limits)
		declare.RoundUp(r.Requests)
	}
}

// defaultContainer sets the defaults of a container of any kind. Quantities are rounded up to thousandths, so a
// client may read another value than it has sent.
func defaultContainer(c *corev1.Container) {
	for i := range c.Ports {
		declare.Value(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		if from.FieldRef != nil {
			defaultFieldRef(from.FieldRef)
		}
		if from.FileKeyRef != nil {
			declare.Pointer(&from.FileKeyRef.Optional, false)
		}
	}
	declare.RoundUp(c.Resources.Limits)
	declare.RoundUp(c.Resources.Requests)
	defaultProbe(c.LivenessProbe)
	defaultProbe(c.ReadinessProbe)
	defaultProbe(c.StartupProbe)
	if l := c.Lifecycle; l != nil {
		for _, h := range []*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
	declare.Value(&c.ImagePullPolicy, pullPolicy(c.Image))
	declare.Value(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	declare.Value(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
}

func defaultFieldRef(r *corev1.ObjectFieldSelector) { declare.Value(&r.APIVersion, "v1") }

// defaultProbe sets the defaults of a probe, in seconds and in numbers of probes. A field with 0 cannot be told
// from a missing one, and gets the default too.
func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	declare.Value(&p.TimeoutSeconds, 1)
	declare.Value(&p.PeriodSeconds, 10)
	declare.Value(&p.SuccessThreshold, 1)
	declare.Value(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		declare.Pointer(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(a *corev1.HTTPGetAction) {
	if a == nil {
		return
	}
	declare.Value(&a.Path, "/")
	declare.Value(&a.Scheme, corev1.URISchemeHTTP)
}

// defaultVolume sets the defaults of a volume. A volume without any source is an emptyDir. An empty host path
// type means that the kubelet checks nothing before the mount.
func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	// A valid volume has one source. Validation comes later, so each source gets its defaults.
	if s := v.HostPath; s != nil {
		declare.Pointer(&s.Type, corev1.HostPathUnset)
	}
	if s := v.Secret; s != nil {
		declare.Pointer(&s.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if s := v.ConfigMap; s != nil {
		declare.Pointer(&s.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if s := v.DownwardAPI; s != nil {
		declare.Pointer(&s.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardItems(s.Items)
	}
	if s := v.Projected; s != nil {
		defaultProjected(s)
	}
	if s := v.ISCSI; s != nil {
		declare.Value(&s.ISCSIInterface, "default")
	}
	if s := v.RBD; s != nil {
		declare.Value(&s.RBDPool, "rbd")
		declare.Value(&s.RadosUser, "admin")
		declare.Value(&s.Keyring, "/etc/ceph/keyring")
	}
	if s := v.AzureDisk; s != nil {
		defaultAzureDisk(s)
	}
	if s := v.ScaleIO; s != nil {
		declare.Value(&s.StorageMode, "ThinProvisioned")
		declare.Value(&s.FSType, "xfs")
	}
	if s := v.Ephemeral; s != nil && s.VolumeClaimTemplate != nil {
		DefaultPersistentVolumeClaimSpec(&s.VolumeClaimTemplate.Spec)
	}
	if s := v.Image; s != nil {
		declare.Value(&s.PullPolicy, pullPolicy(s.Reference))
	}
}

func defaultDownwardItems(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			defaultFieldRef(items[i].FieldRef)
		}
	}
}

// defaultProjected sets the defaults of a projected volume. Tokens are valid for 1 hour; the unit is seconds.
func defaultProjected(p *corev1.ProjectedVolumeSource) {
	declare.Pointer(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		source := &p.Sources[i]
		if source.DownwardAPI != nil {
			defaultDownwardItems(source.DownwardAPI.Items)
		}
		if source.ServiceAccountToken != nil {
			declare.Pointer(&source.ServiceAccountToken.ExpirationSeconds, 60*60)
		}
	}
}

func defaultAzureDisk(s *corev1.AzureDiskVolumeSource) {
	declare.Pointer(&s.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	declare.Pointer(&s.Kind, corev1.AzureSharedBlobDisk)
	declare.Pointer(&s.FSType, "ext4")
	declare.Pointer(&s.ReadOnly, false)
}

// DefaultPersistentVolumeClaimSpec sets the defaults of a claim's spec in a
// PersistentVolumeClaim, in a template of a StatefulSet and in an ephemeral volume.
func DefaultPersistentVolumeClaimSpec(s *corev1.PersistentVolumeClaimSpec) {
	declare.RoundUp(s.Resources.Limits)
	declare.RoundUp(s.Resources.Requests)
	declare.Pointer(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
}
