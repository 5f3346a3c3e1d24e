package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
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
	dropObsoleteInitAnnotations(t.Annotations)
	DefaultPodSpec(&t.Spec)
}

// DefaultPodSpec sets the defaults that pods and pod templates have in common.
func DefaultPodSpec(s *corev1.PodSpec) {
	if s.ServiceAccountName == "" {
		s.ServiceAccountName = s.DeprecatedServiceAccount
	}
	s.DeprecatedServiceAccount = s.ServiceAccountName
	if s.DNSPolicy == "" {
		s.DNSPolicy = corev1.DNSClusterFirst
	}
	if s.RestartPolicy == "" {
		s.RestartPolicy = corev1.RestartPolicyAlways
	}
	if s.SecurityContext == nil {
		s.SecurityContext = &corev1.PodSecurityContext{}
	}
	if s.TerminationGracePeriodSeconds == nil {
		s.TerminationGracePeriodSeconds = ptr.To[int64](corev1.DefaultTerminationGracePeriodSeconds)
	}
	if s.SchedulerName == "" {
		s.SchedulerName = corev1.DefaultSchedulerName
	}
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
	roundUpResources(s.Overhead)
	if r := s.Resources; r != nil {
		roundUpResources(r.Limits)
		roundUpResources(r.Requests)
	}
}

// roundUpResources rounds quantities up to thousandths, the highest precision in the API.
func roundUpResources(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

// setDefault sets *p if it is the zero value.
func setDefault[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// setDefaultPointer sets *p if it is nil.
func setDefaultPointer[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

func defaultContainer(c *corev1.Container) {
	for i := range c.Ports {
		setDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
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
			setDefaultPointer(&from.FileKeyRef.Optional, false)
		}
	}
	roundUpResources(c.Resources.Limits)
	roundUpResources(c.Resources.Requests)
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
	setDefault(&c.ImagePullPolicy, pullPolicy(c.Image))
	setDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
}

func defaultFieldRef(r *corev1.ObjectFieldSelector) { setDefault(&r.APIVersion, "v1") }

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	setDefault(&p.TimeoutSeconds, 1)
	setDefault(&p.PeriodSeconds, 10)
	setDefault(&p.SuccessThreshold, 1)
	setDefault(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		setDefaultPointer(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(a *corev1.HTTPGetAction) {
	if a == nil {
		return
	}
	setDefault(&a.Path, "/")
	setDefault(&a.Scheme, corev1.URISchemeHTTP)
}

func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	// A valid volume has one source. Validation comes later, so each source gets its defaults.
	if s := v.HostPath; s != nil {
		setDefaultPointer(&s.Type, corev1.HostPathUnset)
	}
	if s := v.Secret; s != nil {
		setDefaultPointer(&s.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if s := v.ConfigMap; s != nil {
		setDefaultPointer(&s.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if s := v.DownwardAPI; s != nil {
		setDefaultPointer(&s.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardItems(s.Items)
	}
	if s := v.Projected; s != nil {
		defaultProjected(s)
	}
	if s := v.ISCSI; s != nil {
		setDefault(&s.ISCSIInterface, "default")
	}
	if s := v.RBD; s != nil {
		setDefault(&s.RBDPool, "rbd")
		setDefault(&s.RadosUser, "admin")
		setDefault(&s.Keyring, "/etc/ceph/keyring")
	}
	if s := v.AzureDisk; s != nil {
		defaultAzureDisk(s)
	}
	if s := v.ScaleIO; s != nil {
		setDefault(&s.StorageMode, "ThinProvisioned")
		setDefault(&s.FSType, "xfs")
	}
	if s := v.Ephemeral; s != nil && s.VolumeClaimTemplate != nil {
		DefaultPersistentVolumeClaimSpec(&s.VolumeClaimTemplate.Spec)
	}
	if s := v.Image; s != nil {
		setDefault(&s.PullPolicy, pullPolicy(s.Reference))
	}
}

func defaultDownwardItems(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			defaultFieldRef(items[i].FieldRef)
		}
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	setDefaultPointer(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		source := &p.Sources[i]
		if source.DownwardAPI != nil {
			defaultDownwardItems(source.DownwardAPI.Items)
		}
		if source.ServiceAccountToken != nil {
			setDefaultPointer(&source.ServiceAccountToken.ExpirationSeconds, 60*60)
		}
	}
}

func defaultAzureDisk(s *corev1.AzureDiskVolumeSource) {
	setDefaultPointer(&s.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	setDefaultPointer(&s.Kind, corev1.AzureSharedBlobDisk)
	setDefaultPointer(&s.FSType, "ext4")
	setDefaultPointer(&s.ReadOnly, false)
}

// DefaultPersistentVolumeClaimSpec sets the defaults of a claim's spec in a
// PersistentVolumeClaim, in a template of a StatefulSet and in an ephemeral volume.
func DefaultPersistentVolumeClaimSpec(s *corev1.PersistentVolumeClaimSpec) {
	roundUpResources(s.Resources.Limits)
	roundUpResources(s.Resources.Requests)
	setDefaultPointer(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
}
