package core

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/names"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// deprecatedNodeLabels has the texts of the warnings about deprecated node labels.
var deprecatedNodeLabels = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region":      `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":        `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":              `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

// DeprecatedNodeLabel returns the text of the warning about a label of nodes, "" if the label is not deprecated.
func DeprecatedNodeLabel(key string) string { return deprecatedNodeLabels[key] }

// warnPod returns the warnings about a new pod. Updates of pods, which programs make often, have none.
func warnPod(p, old *corev1.Pod) []string {
	if old != nil {
		return nil
	}
	var warnings []string
	if problems := names.IsDNS1123Label(p.Name); len(problems) > 0 {
		warnings = append(warnings,
			fmt.Sprintf("metadata.name: this is used in the Pod's hostname, which can result in surprising "+
				"behavior; a DNS label is recommended: %v", problems))
	}
	return append(warnings, podWarnings(nil, &p.Spec, p.Annotations)...)
}

// PodTemplateWarnings returns the warnings about a pod template at path, which may be nil.
func PodTemplateWarnings(path *field.Path, t *corev1.PodTemplateSpec) []string {
	if t == nil {
		return nil
	}
	return podWarnings(path, &t.Spec, t.Annotations)
}

// warnings is a list of warnings.
type warnings []string

func (w *warnings) add(at *field.Path, format string, args ...any) {
	*w = append(*w, at.String()+": "+fmt.Sprintf(format, args...))
}

// deprecated warns about a source of a volume if it is used.
func (w *warnings) deprecated(at *field.Path, name string, used bool, news string) {
	if used {
		w.add(at.Child(name), "%s", news)
	}
}

// podWarnings returns the warnings about the spec of a pod or a template at the path.
func podWarnings(at *field.Path, s *corev1.PodSpec, annotations map[string]string) []string {
	var w warnings
	spec := field.NewPath("spec")
	meta := field.NewPath("metadata")
	if at != nil {
		spec, meta = at.Child("spec"), at.Child("metadata")
	} else {
		defer spec.Free()
	}
	w.placement(spec, s)
	w.annotations(meta.Child("annotations"), annotations)
	if at != nil { // those of pods are checked when the profiles are set
		w.templateAppArmor(meta.Child("annotations"), s, annotations)
	}
	for i := range s.Volumes {
		w.volume(spec.Child("volumes").Index(i), &s.Volumes[i])
	}
	w.names(spec, s)
	w.containers(spec, s)
	if n := s.TerminationGracePeriodSeconds; n != nil && *n < 0 { // of a template; of a pod it is 1 already
		w.add(spec.Child("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
	if c := s.DNSConfig; c != nil {
		w = append(w, field.WarnEach(spec.Child("dnsConfig", "nameservers"), c.Nameservers, validation.GetWarningsForIP)...)
	}
	for i, a := range s.HostAliases {
		w = append(w, validation.GetWarningsForIP(spec.Child("hostAliases").Index(i).Child("ip").K8s(), a.IP)...)
	}
	if s.Overhead != nil {
		w.fractionalValues(spec.Child("overhead"), s.Overhead)
	}
	if r := s.Resources; r != nil {
		w.fractionalValues(spec.Child("resources", "limits"), r.Limits)
		w.fractionalValues(spec.Child("resources", "requests"), r.Requests)
	}
	return w
}

const matchesNothing = "a null labelSelector results in matching no pod"

// placement warns about label selectors that are missing in rules for the placement of the pod, and about
// deprecated labels of nodes. A missing selector matches no pod, an empty one matches all.
func (w *warnings) placement(spec *field.Path, s *corev1.PodSpec) {
	for label := range s.NodeSelector {
		if news := deprecatedNodeLabels[label]; news != "" {
			w.add(spec.Child("nodeSelector").Key(label), "%s", news)
		}
	}
	for i, c := range s.TopologySpreadConstraints {
		at := spec.Child("topologySpreadConstraints").Index(i)
		if news := deprecatedNodeLabels[c.TopologyKey]; news != "" {
			w.add(at.Child("topologyKey"), "%s is %s", c.TopologyKey, news)
		}
		if c.LabelSelector == nil {
			w.add(at.Child("labelSelector"), matchesNothing)
		}
	}
	a := s.Affinity
	if a == nil {
		return
	}
	spec = spec.Child("affinity")
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution",
		"preferredDuringSchedulingIgnoredDuringExecution"
	if n := a.NodeAffinity; n != nil {
		at := spec.Child("nodeAffinity")
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			for i, t := range n.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
				w.nodeTerm(at.Child(required, "nodeSelectorTerms").Index(i), &t, false)
			}
		}
		for i, t := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			w.nodeTerm(at.Child(preferred).Index(i).Child("preference"), &t.Preference, true)
		}
	}
	terms := func(at *field.Path, a *corev1.PodAffinity) {
		if a == nil {
			return
		}
		for i, t := range a.RequiredDuringSchedulingIgnoredDuringExecution {
			if t.LabelSelector == nil {
				w.add(at.Child(required).Index(i).Child("labelSelector"), matchesNothing)
			}
		}
		for i, t := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			if t.PodAffinityTerm.LabelSelector == nil {
				w.add(at.Child(preferred).Index(i).Child("podAffinityTerm", "labelSelector"), matchesNothing)
			}
		}
	}
	terms(spec.Child("podAffinity"), a.PodAffinity)
	terms(spec.Child("podAntiAffinity"), (*corev1.PodAffinity)(a.PodAntiAffinity))
}

// nodeTerm adds the warnings about a node selector term. If values is true, it also warns
// about values that no label can have; otherwise those are validation errors.
func (w *warnings) nodeTerm(at *field.Path, t *corev1.NodeSelectorTerm, values bool) {
	for i, e := range t.MatchExpressions {
		e, at := e, at.Child("matchExpressions").Index(i)
		if news := deprecatedNodeLabels[e.Key]; news != "" {
			w.add(at.Child("key"), "%s is %s", e.Key, news)
		}
		if !values {
			continue
		}
		for j, v := range e.Values {
			for _, problem := range validation.IsValidLabelValue(v) {
				w.add(at.Child("values").Index(j), "%s is invalid, %s", v, problem)
			}
		}
	}
}

// annotations warns about annotations that have no effect any more. It sorts all warnings so far, because maps
// have no order.
func (w *warnings) annotations(at *field.Path, annotations map[string]string) {
	const criticalPod = "scheduler.alpha.kubernetes.io/critical-pod"
	for name := range annotations {
		switch {
		case name == criticalPod:
			w.add(at.Key(name), `non-functional in v1.16+; use the "priorityClassName" field instead`)
		case name == corev1.SeccompPodAnnotationKey || strings.HasPrefix(name, corev1.SeccompContainerAnnotationKeyPrefix):
			w.add(at.Key(name), `non-functional in v1.27+; use the "seccompProfile" field instead`)
		}
	}
	slices.Sort(*w)
}

func (w *warnings) volume(at *field.Path, v *corev1.Volume) {
	w.deprecated(at, "photonPersistentDisk", v.PhotonPersistentDisk != nil, "deprecated in v1.11, non-functional in v1.16+")
	w.deprecated(at, "gitRepo", v.GitRepo != nil, "deprecated in v1.11, and disabled by default in v1.33+")
	w.deprecated(at, "scaleIO", v.ScaleIO != nil, "deprecated in v1.16, non-functional in v1.22+")
	w.deprecated(at, "flocker", v.Flocker != nil, "deprecated in v1.22, non-functional in v1.25+")
	w.deprecated(at, "storageOS", v.StorageOS != nil, "deprecated in v1.22, non-functional in v1.25+")
	w.deprecated(at, "quobyte", v.Quobyte != nil, "deprecated in v1.22, non-functional in v1.25+")
	w.deprecated(at, "glusterfs", v.Glusterfs != nil, "deprecated in v1.25, non-functional in v1.26+")
	w.deprecated(at, "cephfs", v.CephFS != nil, "deprecated in v1.28, non-functional in v1.31+")
	w.deprecated(at, "rbd", v.RBD != nil, "deprecated in v1.28, non-functional in v1.31+")
	if e := v.Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
		*w = append(*w,
			claimSpecWarnings(at.Child("ephemeral", "volumeClaimTemplate", "spec"), &e.VolumeClaimTemplate.Spec)...)
	}
	switch {
	case v.ConfigMap != nil:
		w.overlappingFiles(fmt.Sprintf("volume %q (ConfigMap %q): overlapping paths", v.Name, v.ConfigMap.Name),
			keyFiles("", v.ConfigMap.Items))
	case v.Secret != nil:
		w.overlappingFiles(fmt.Sprintf("volume %q (Secret %q): overlapping paths", v.Name, v.Secret.SecretName),
			keyFiles("", v.Secret.Items))
	case v.DownwardAPI != nil:
		w.overlappingFiles(fmt.Sprintf("volume %q (DownwardAPI): overlapping paths", v.Name),
			downwardFiles("", v.DownwardAPI.Items))
	case v.Projected != nil:
		w.projected(v.Name, v.Projected)
	}
}

// volumeFile is the path of a file in a volume. source describes where its content comes from.
type volumeFile struct{ path, source string }

func keyFiles(source string, items []corev1.KeyToPath) []volumeFile {
	var out []volumeFile
	for _, i := range items {
		out = append(out, volumeFile{i.Path, source})
	}
	return out
}

func downwardFiles(source string, items []corev1.DownwardAPIVolumeFile) []volumeFile {
	var out []volumeFile
	for _, i := range items {
		out = append(out, volumeFile{i.Path, source})
	}
	return out
}

// projected warns about files of different sources that overlap. Equal paths are refused by validation too; a
// path below the path of another file, such as a and a/b, gives only this warning.
func (w *warnings) projected(name string, p *corev1.ProjectedVolumeSource) {
	var files []volumeFile
	for _, s := range p.Sources {
		switch {
		case s == (corev1.VolumeProjection{}):
			*w = append(*w, fmt.Sprintf("volume %q (Projected) has no sources provided", name))
		case s.ConfigMap != nil:
			files = append(files, keyFiles(fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name), s.ConfigMap.Items)...)
		case s.Secret != nil:
			files = append(files, keyFiles(fmt.Sprintf("Secret %q", s.Secret.Name), s.Secret.Items)...)
		case s.DownwardAPI != nil:
			files = append(files, downwardFiles("DownwardAPI", s.DownwardAPI.Items)...)
		case s.ServiceAccountToken != nil:
			files = append(files, volumeFile{s.ServiceAccountToken.Path, "ServiceAccountToken"})
		case s.ClusterTrustBundle != nil:
			of := "ClusterTrustBundle"
			if n := s.ClusterTrustBundle.Name; n != nil {
				of = fmt.Sprintf("ClusterTrustBundle %q", *n)
			}
			files = append(files, volumeFile{s.ClusterTrustBundle.Path, of})
		case s.PodCertificate != nil:
			for _, f := range []string{s.PodCertificate.CredentialBundlePath, s.PodCertificate.KeyPath,
				s.PodCertificate.CertificateChainPath} {
				if f != "" {
					files = append(files, volumeFile{f, "PodCertificate chain"})
				}
			}
		}
	}
	w.overlappingFiles(fmt.Sprintf("volume %q (Projected): overlapping paths", name), files)
}

// overlappingFiles warns about paths that are equal to, above or below an earlier path.
func (w *warnings) overlappingFiles(what string, files []volumeFile) {
	named := func(f volumeFile) string {
		if f.source == "" {
			return fmt.Sprintf("%q", f.path)
		}
		return fmt.Sprintf("%q (%s)", f.path, f.source)
	}
	for i, f := range files {
		a := path.Clean(f.path)
		for _, other := range files[:i] {
			b := path.Clean(other.path)
			if a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/") {
				*w = append(*w, fmt.Sprintf("%s: %s with %s", what, named(f), named(other)))
			}
		}
	}
}

// names warns about names that should be unique. They are keys of lists that apply merges by key, but pods with
// duplicates were always accepted.
func (w *warnings) names(spec *field.Path, s *corev1.PodSpec) {
	secrets := map[string]bool{}
	for i, r := range s.ImagePullSecrets {
		at := spec.Child("imagePullSecrets").Index(i).Child("name")
		if r.Name == "" {
			w.add(at, "invalid empty name %q", r.Name)
		}
		if secrets[r.Name] {
			w.add(at, "duplicate name %q", r.Name)
		}
		secrets[r.Name] = true
	}
	ips := map[string]bool{}
	for i, h := range s.HostAliases {
		if ips[h.IP] {
			w.add(spec.Child("hostAliases").Index(i).Child("ip"), "duplicate ip %q", h.IP)
		}
		ips[h.IP] = true
	}
}

// namedPort is a container port and its path.
type namedPort struct {
	port corev1.ContainerPort
	at   *field.Path
}

func (w *warnings) containers(spec *field.Path, s *corev1.PodSpec) {
	// Only ports of containers that run at the same time are compared.
	var ports []namedPort
	for i := range s.InitContainers {
		c, at := &s.InitContainers[i], spec.Child("initContainers").Index(i)
		w.container(at, c)
		if isSidecar(c) {
			ports = w.ports(at, c, ports)
		} else {
			w.ports(at, c, nil)
		}
	}
	for i := range s.Containers {
		c, at := &s.Containers[i], spec.Child("containers").Index(i)
		w.container(at, c)
		ports = w.ports(at, c, ports)
	}
}

// container warns about the resources and the variables of a container. A variable may be defined again if its
// value refers to the earlier one: PATH=$(PATH):/opt/bin. Otherwise apply, which merges variables by name, may
// lose one of them.
func (w *warnings) container(at *field.Path, c *corev1.Container) {
	w.fractionalValues(at.Child("resources", "limits"), c.Resources.Limits)
	w.fractionalValues(at.Child("resources", "requests"), c.Resources.Requests)
	seen := map[string]bool{}
	for i, e := range c.Env {
		if seen[e.Name] && !strings.Contains(e.Value, "$("+e.Name+")") {
			w.add(at.Child("env").Index(i), "hides previous definition of %q, which may be dropped when using apply", e.Name)
		}
		seen[e.Name] = true
	}
}

// fractionalValues warns about fractions of bytes. They are often typing errors, such as 100m, a tenth of a
// byte, in place of 100M.
func (w *warnings) fractionalValues(at *field.Path, list corev1.ResourceList) {
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourceStorage} {
		if q, ok := list[name]; ok && q.MilliValue()%1000 != 0 {
			w.add(at.Key(string(name)), "fractional byte value %q is invalid, must be an integer", q.String())
		}
	}
}

// ports warns about ports that clash with each other, and returns others with the ports of the container.
// others are the ports of containers that run at the same time.
func (w *warnings) ports(at *field.Path, c *corev1.Container, others []namedPort) []namedPort {
	for i, p := range c.Ports {
		at := at.Child("ports").Index(i)
		if p.HostIP != "" && p.HostPort == 0 {
			w.add(at, "hostIP set without hostPort: %+v", p)
		}
		for _, o := range others {
			if conflict := portConflict(&p, &o.port); conflict != "" {
				w.add(at, "%s port definition with %s", conflict, o.at)
			}
		}
		for _, o := range others {
			if p.Name != "" && p.Name == o.port.Name {
				w.add(at, "duplicate port name %q with %s, services and probes that select ports by name will use %s", p.Name, o.at,
					o.at)
				break
			}
		}
		others = append(others, namedPort{p, at})
	}
	return others
}

// portConflict says how two ports of containers are in conflict, "" if they are not.
// "overlapping" means that one of the ports has no host port, and "dangerously ambiguous" that only one is for
// all host IPs.
func portConflict(a, b *corev1.ContainerPort) string {
	switch {
	case a.Protocol != b.Protocol || a.ContainerPort != b.ContainerPort:
		return ""
	case a.HostPort == b.HostPort && a.HostIP == b.HostIP:
		return "duplicate"
	case a.HostPort == 0 || b.HostPort == 0:
		return "overlapping"
	case a.HostPort == b.HostPort && (a.HostIP == "") != (b.HostIP == ""):
		return "dangerously ambiguous"
	}
	return ""
}

func claimSpecWarnings(at *field.Path, s *corev1.PersistentVolumeClaimSpec) []string {
	var w warnings
	w.fractionalValues(at.Child("resources", "limits"), s.Resources.Limits)
	w.fractionalValues(at.Child("resources", "requests"), s.Resources.Requests)
	return w
}

func persistentVolumeClaimWarnings(c, _ *corev1.PersistentVolumeClaim) []string {
	var w warnings
	w.storageClass(c.Annotations)
	return append(w, claimSpecWarnings(field.NewPath("spec"), &c.Spec)...)
}

func (w *warnings) storageClass(annotations map[string]string) {
	if _, ok := annotations[storageClassAnnotation]; ok {
		w.add(field.NewPath("metadata", "annotations").Key(storageClassAnnotation),
			`deprecated since v1.8; use "storageClassName" attribute instead`)
	}
}

func persistentVolumeWarnings(v, _ *corev1.PersistentVolume) []string {
	var w warnings
	w.storageClass(v.Annotations)
	if _, ok := v.Annotations[mountOptionsAnnotation]; ok {
		w.add(field.NewPath("metadata", "annotations").Key(mountOptionsAnnotation),
			`deprecated since v1.31; use "mountOptions" attribute instead`)
	}
	spec := field.NewPath("spec")
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		w.add(spec.Child("persistentVolumeReclaimPolicy"),
			"The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if n := v.Spec.NodeAffinity; n != nil && n.Required != nil {
		for i := range n.Required.NodeSelectorTerms {
			w.nodeTerm(spec.Child("nodeAffinity", "required", "nodeSelectorTerms").Index(i), &n.Required.NodeSelectorTerms[i],
				false)
		}
	}
	w.deprecated(spec, "cephfs", v.Spec.CephFS != nil, "deprecated in v1.28, non-functional in v1.31+")
	w.deprecated(spec, "photonPersistentDisk", v.Spec.PhotonPersistentDisk != nil,
		"deprecated in v1.11, non-functional in v1.16+")
	w.deprecated(spec, "scaleIO", v.Spec.ScaleIO != nil, "deprecated in v1.16, non-functional in v1.22+")
	w.deprecated(spec, "storageOS", v.Spec.StorageOS != nil, "deprecated in v1.22, non-functional in v1.25+")
	w.deprecated(spec, "glusterfs", v.Spec.Glusterfs != nil, "deprecated in v1.25, non-functional in v1.26+")
	w.deprecated(spec, "rbd", v.Spec.RBD != nil, "deprecated in v1.28, non-functional in v1.31+")
	return w
}
