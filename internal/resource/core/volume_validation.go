package core

import (
	"encoding/json"
	"fmt"
	"net"
	"path"
	"reflect"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// validateVolumes also returns the valid volumes by name, because only these can be mounted.
// As a consequence, a container that mounts an invalid volume gets an error too: the volume is not found.
func validateVolumes(
	volumes []corev1.Volume, rules podRules, podName string, at *field.Path,
) (map[string]*corev1.VolumeSource, field.ErrorList) {
	var errs field.ErrorList
	valid := map[string]*corev1.VolumeSource{}
	// The claim of an ephemeral volume is made for the pod, so another volume cannot be that claim.
	made := map[string]bool{}
	for i := range volumes {
		if volumes[i].Ephemeral != nil && podName != "" {
			made[podName+"-"+volumes[i].Name] = true
		}
	}
	for i := range volumes {
		v, at := &volumes[i], at.Index(i)
		own := validateVolumeSource(v, rules, podName, at)
		own = append(own, field.NotEmptyAnd(at.Child("name"), v.Name, field.DNSLabel)...)
		own = append(own, field.DuplicateIf(valid[v.Name] != nil, at.Child("name"), v.Name)...)
		if len(own) == 0 {
			valid[v.Name] = &v.VolumeSource
		}
		errs = append(errs, own...)
		if c := v.PersistentVolumeClaim; c != nil {
			errs = append(errs, field.InvalidIf(made[c.ClaimName], at.Child("persistentVolumeClaim", "claimName"), c.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume")...)
		}
	}
	return valid, errs
}

// volumeSources validates the first source that is set, and returns errors for further ones.
type volumeSources struct {
	path *field.Path
	many string
	n    int
	errs field.ErrorList
}

func (s *volumeSources) add(name string, set bool, check func(*field.Path) field.ErrorList) {
	s.addAs(name, name, set, check)
}

// addAs is add for a source whose error has another field name if it is one too many.
func (s *volumeSources) addAs(name, refused string, set bool, check func(*field.Path) field.ErrorList) {
	if !set {
		return
	}
	if s.n++; s.n > 1 {
		s.errs = append(s.errs, field.Forbidden(s.path.Child(refused), s.many))
		return
	}
	s.errs = append(s.errs, check(s.path.Child(name))...)
}

// addDisks adds the sources that are alike in volumes of pods and in persistent volumes, and follow one another there.
func (s *volumeSources) addDisks(
	vsphere *corev1.VsphereVirtualDiskVolumeSource, photon *corev1.PhotonPersistentDiskVolumeSource,
	portworx *corev1.PortworxVolumeSource, azure *corev1.AzureDiskVolumeSource,
) {
	s.add("vsphereVolume", vsphere != nil, func(at *field.Path) field.ErrorList {
		return field.NotEmpty(at.Child("volumePath"), vsphere.VolumePath)
	})
	s.add("photonPersistentDisk", photon != nil, func(at *field.Path) field.ErrorList {
		return field.NotEmpty(at.Child("pdID"), photon.PdID)
	})
	s.add("portworxVolume", portworx != nil, func(at *field.Path) field.ErrorList {
		return field.NotEmpty(at.Child("volumeID"), portworx.VolumeID)
	})
	s.add("azureDisk", azure != nil, func(at *field.Path) field.ErrorList { return validateAzureDisk(azure, at) })
}

// validateVolumeSource requires exactly one source. As in kube-apiserver, the sources are looked at in this
// order, and only the first one is validated. podName is the name of the pod, "" for a template.
func validateVolumeSource(v *corev1.Volume, rules podRules, podName string, at *field.Path) field.ErrorList {
	name := v.Name
	s := &volumeSources{path: at, many: "may not specify more than 1 volume type"}
	s.add("emptyDir", v.EmptyDir != nil, func(at *field.Path) field.ErrorList { return validateEmptyDir(v.EmptyDir, at) })
	s.add("hostPath", v.HostPath != nil, func(at *field.Path) field.ErrorList { return validateHostPath(v.HostPath, at) })
	s.add("gitRepo", v.GitRepo != nil, func(at *field.Path) field.ErrorList {
		return append(field.NotEmpty(at.Child("repository"), v.GitRepo.Repository),
			validateLocalPath(at.Child("directory"), v.GitRepo.Directory)...)
	})
	s.addAs("persistentDisk", "gcePersistentDisk", v.GCEPersistentDisk != nil, func(at *field.Path) field.ErrorList {
		return append(field.NotEmpty(at.Child("pdName"), v.GCEPersistentDisk.PDName),
			validatePartition(v.GCEPersistentDisk.Partition, at)...)
	})
	s.add("awsElasticBlockStore", v.AWSElasticBlockStore != nil, func(at *field.Path) field.ErrorList {
		return append(field.NotEmpty(at.Child("volumeID"), v.AWSElasticBlockStore.VolumeID),
			validatePartition(v.AWSElasticBlockStore.Partition, at)...)
	})
	s.add("secret", v.Secret != nil, func(at *field.Path) field.ErrorList {
		errs := field.NotEmpty(at.Child("secretName"), v.Secret.SecretName)
		errs = append(errs, fileMode(at.Child("defaultMode"), v.Secret.DefaultMode)...)
		errs = append(errs, fileOwner(at.Child("defaultUser"), v.Secret.DefaultUser)...)
		return append(errs, validateKeyToPaths(v.Secret.Items, at.Child("items"))...)
	})
	s.add("nfs", v.NFS != nil, func(at *field.Path) field.ErrorList { return validateNFS(v.NFS, at) })
	s.add("iscsi", v.ISCSI != nil, func(at *field.Path) field.ErrorList {
		i := v.ISCSI
		return validateISCSI(i.TargetPortal, i.IQN, i.Lun, i.InitiatorName, i.DiscoveryCHAPAuth || i.SessionCHAPAuth,
			i.SecretRef != nil, at, "must be valid format starting with iqn, eui, or naa")
	})
	if i := v.ISCSI; i != nil && i.InitiatorName != nil && len(name+":"+i.TargetPortal) > 64 {
		s.errs = append(s.errs, field.Invalid(at.Child("name"), name, iscsiTooLong))
	}
	s.add("glusterfs", v.Glusterfs != nil, func(at *field.Path) field.ErrorList {
		return append(field.NotEmpty(at.Child("endpoints"), v.Glusterfs.EndpointsName),
			field.NotEmpty(at.Child("path"), v.Glusterfs.Path)...)
	})
	s.add("flocker", v.Flocker != nil, func(at *field.Path) field.ErrorList { return validateFlocker(v.Flocker, at) })
	s.add("persistentVolumeClaim", v.PersistentVolumeClaim != nil, func(at *field.Path) field.ErrorList {
		return field.NotEmpty(at.Child("claimName"), v.PersistentVolumeClaim.ClaimName)
	})
	s.add("rbd", v.RBD != nil, func(at *field.Path) field.ErrorList {
		return append(field.RequiredIf(len(v.RBD.CephMonitors) == 0, at.Child("monitors"), ""),
			field.NotEmpty(at.Child("image"), v.RBD.RBDImage)...)
	})
	s.add("cinder", v.Cinder != nil, func(at *field.Path) field.ErrorList {
		errs := field.NotEmpty(at.Child("volumeID"), v.Cinder.VolumeID)
		return append(errs, field.IfPresent(at.Child("secretRef"), v.Cinder.SecretRef, namedSecret)...)
	})
	s.addAs("cephfs", "cephFS", v.CephFS != nil, func(at *field.Path) field.ErrorList {
		return field.RequiredIf(len(v.CephFS.Monitors) == 0, at.Child("monitors"), "")
	})
	s.add("quobyte", v.Quobyte != nil, func(at *field.Path) field.ErrorList { return validateQuobyte(v.Quobyte, at) })
	// kube-apiserver has this typing error in the path of the error.
	s.addAs("downwardAPI", "downwarAPI", v.DownwardAPI != nil, func(at *field.Path) field.ErrorList {
		errs := fileMode(at.Child("defaultMode"), v.DownwardAPI.DefaultMode)
		errs = append(errs, fileOwner(at.Child("defaultUser"), v.DownwardAPI.DefaultUser)...)
		for i := range v.DownwardAPI.Items {
			errs = append(errs, validateDownwardFile(&v.DownwardAPI.Items[i], at)...)
		}
		return errs
	})
	s.add("fc", v.FC != nil, func(at *field.Path) field.ErrorList { return validateFC(v.FC, at) })
	s.add("flexVolume", v.FlexVolume != nil, func(at *field.Path) field.ErrorList {
		return validateFlex(v.FlexVolume.Driver, v.FlexVolume.Options, at)
	})
	s.add("configMap", v.ConfigMap != nil, func(at *field.Path) field.ErrorList {
		errs := field.NotEmpty(at.Child("name"), v.ConfigMap.Name)
		errs = append(errs, fileMode(at.Child("defaultMode"), v.ConfigMap.DefaultMode)...)
		errs = append(errs, fileOwner(at.Child("defaultUser"), v.ConfigMap.DefaultUser)...)
		return append(errs, validateKeyToPaths(v.ConfigMap.Items, at.Child("items"))...)
	})
	s.add("azureFile", v.AzureFile != nil, func(at *field.Path) field.ErrorList {
		return append(field.NotEmpty(at.Child("secretName"), v.AzureFile.SecretName),
			field.NotEmpty(at.Child("shareName"), v.AzureFile.ShareName)...)
	})
	s.addDisks(v.VsphereVolume, v.PhotonPersistentDisk, v.PortworxVolume, v.AzureDisk)
	s.add("storageos", v.StorageOS != nil, func(at *field.Path) field.ErrorList {
		errs := validateStorageOSNames(v.StorageOS.VolumeName, v.StorageOS.VolumeNamespace, at)
		return append(errs, field.IfPresent(at.Child("secretRef"), v.StorageOS.SecretRef, namedSecret)...)
	})
	s.add("projected", v.Projected != nil,
		func(at *field.Path) field.ErrorList { return validateProjected(v.Projected, at) })
	s.add("scaleIO", v.ScaleIO != nil, func(at *field.Path) field.ErrorList {
		return validateScaleIO(v.ScaleIO.Gateway, v.ScaleIO.System, v.ScaleIO.VolumeName, at)
	})
	s.add("csi", v.CSI != nil, func(at *field.Path) field.ErrorList { return validateCSI(v.CSI, at) })
	s.add("ephemeral", v.Ephemeral != nil,
		func(at *field.Path) field.ErrorList { return validateEphemeral(v.Ephemeral, at) })
	// The claim of an ephemeral volume (KEP-1698) is named after the pod and the volume. In a template, the
	// name of the pod is not known.
	if v.Ephemeral != nil && s.n == 1 && podName != "" && name != "" {
		claim := podName + "-" + name
		for _, m := range validation.IsDNS1123Subdomain(claim) {
			s.errs = append(s.errs, field.Invalid(at.Child("name"), name, fmt.Sprintf("PVC name %q: %v", claim, m)))
		}
	}
	// The image or artifact is mounted without being run (KEP-4639).
	s.add("image", v.Image != nil, func(at *field.Path) field.ErrorList {
		var errs field.ErrorList
		if !rules.unnamedImages {
			errs = field.NotEmpty(at.Child("reference"), v.Image.Reference)
		}
		return append(errs,
			field.OneOf(at.Child("pullPolicy"), v.Image.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	})
	return append(s.errs, field.RequiredIf(s.n == 0, at, "must specify a volume type")...)
}

// validateEmptyDir validates an emptyDir. Its mode may have the sticky bit (01000), which folders for all users
// need, such as /tmp.
func validateEmptyDir(d *corev1.EmptyDirVolumeSource, at *field.Path) field.ErrorList {
	const maxMode = 0o1777
	errs := field.ForbiddenIf(d.SizeLimit != nil && d.SizeLimit.Sign() < 0, at.Child("sizeLimit"),
		"SizeLimit field must be a valid resource quantity")
	return append(errs, field.Optional(at.Child("mode"), d.Mode, func(at *field.Path, mode int32) field.ErrorList {
		return field.InvalidIf(mode < 0 || mode > maxMode, at, mode,
			"must be a number between 0 and 01777 (octal), both inclusive")
	})...)
}

// fileOwner validates the user ID of the owner of files, which may be nil.
func fileOwner(path *field.Path, user *int64) field.ErrorList {
	return field.Optional(path, user, userID)
}

// namedSecret requires the name of a secret.
func namedSecret(r *corev1.LocalObjectReference, at *field.Path) field.ErrorList {
	return field.NotEmpty(at.Child("name"), r.Name)
}

// validatePartition accepts 0 to 255. 0 means that the volume is not partitioned; the message does not mention
// it.
func validatePartition(n int32, at *field.Path) field.ErrorList {
	if n < 0 || n > 255 {
		return field.ErrorList{field.Invalid(at.Child("partition"), n, validation.InclusiveRangeError(1, 255))}
	}
	return nil
}

func validateHostPath(h *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	if h.Path == "" {
		return field.ErrorList{field.Required(at.Child("path"), "")}
	}
	errs := noBacksteps(at.Child("path"), h.Path)
	return append(errs, field.OptionalOneOf(at.Child("type"), h.Type, corev1.HostPathUnset, corev1.HostPathBlockDev,
		corev1.HostPathCharDev, corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate, corev1.HostPathFile,
		corev1.HostPathFileOrCreate, corev1.HostPathSocket)...)
}

// validateNFS validates an NFS source. An empty path gets two errors, because it is not absolute either.
func validateNFS(n *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := field.NotEmpty(at.Child("server"), n.Server)
	errs = append(errs, field.NotEmpty(at.Child("path"), n.Path)...)
	return append(errs, field.InvalidIf(!path.IsAbs(n.Path), at.Child("path"), n.Path, "must be an absolute path")...)
}

// iscsiTooLong is the message about the name of an iSCSI interface: see validateISCSIVolume.
const iscsiTooLong = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if " +
	"iscsi.initiatorName is specified."

// validateISCSI validates what the iscsi sources of pods and of volumes have in common. prefix is the message about
// names of an unknown type, which differs.
func validateISCSI(
	portal, iqn string, lun int32, initiator *string, chap, secret bool, at *field.Path, prefix string,
) field.ErrorList {
	validName := func(at *field.Path, name string) field.ErrorList { return validateISCSIName(at, name, prefix) }
	errs := field.NotEmpty(at.Child("targetPortal"), portal)
	errs = append(errs, field.NotEmptyAnd(at.Child("iqn"), iqn, validName)...)
	errs = append(errs, field.InRange(at.Child("lun"), int64(lun), 0, 255)...)
	errs = append(errs, field.RequiredIf(chap && !secret, at.Child("secretRef"), "")...)
	return append(errs, field.Optional(at.Child("initiatorname"), initiator, validName)...)
}

const iscsiFormat = "must be valid format"

// iscsiNames are the formats of the three types of iSCSI names, which begin with the name of the type.
// See RFC 3720 and RFC 3980 for the types. The patterns are those of kube-apiserver: the dot after eui and naa
// matches any character.
var iscsiNames = map[string]func() *regexp.Regexp{
	"iqn": field.Pattern(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": field.Pattern(`^eui.[[:alnum:]]{16}$`),
	"naa": field.Pattern(`^naa.[[:alnum:]]{32}$`),
}

// validateISCSIName looks for the format by the first three letters. prefix is the message if there is none.
func validateISCSIName(at *field.Path, name, prefix string) field.ErrorList {
	format := iscsiNames[name[:min(len(name), 3)]]
	if format == nil {
		return field.ErrorList{field.Invalid(at, name, prefix)}
	}
	return field.InvalidIf(!format().MatchString(name), at, name, iscsiFormat)
}

func validateFlocker(f *corev1.FlockerVolumeSource, at *field.Path) field.ErrorList {
	return field.Join(
		field.RequiredIf(f.DatasetName == "" && f.DatasetUUID == "", at, "one of datasetName and datasetUUID is required"),
		field.InvalidIf(f.DatasetName != "" && f.DatasetUUID != "", at, "resource",
			"datasetName and datasetUUID can not be specified simultaneously"),
		field.InvalidIf(strings.Contains(f.DatasetName, "/"), at.Child("datasetName"), f.DatasetName,
			"must not contain '/'"),
	)
}

// validateQuobyte validates a quobyte source. If the registry is missing, or the tenant is too long, the pairs
// are not validated. As in kube-apiserver, the error about such a tenant is that of a missing field.
func validateQuobyte(q *corev1.QuobyteVolumeSource, at *field.Path) field.ErrorList {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	var errs field.ErrorList
	if q.Registry == "" {
		errs = append(errs, field.Required(at.Child("registry"), pairs))
	} else if len(q.Tenant) >= 65 {
		errs = append(errs, field.Required(at.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters"))
	} else {
		for pair := range strings.SplitSeq(q.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				errs = append(errs, field.Invalid(at.Child("registry"), q.Registry, pairs))
			}
		}
	}
	return append(errs, field.NotEmpty(at.Child("volume"), q.Volume)...)
}

func validateFC(f *corev1.FCVolumeSource, at *field.Path) field.ErrorList {
	errs := field.Join(
		field.RequiredIf(len(f.TargetWWNs) == 0 && len(f.WWIDs) == 0, at.Child("targetWWNs"),
			"must specify either targetWWNs or wwids, but not both"),
		field.InvalidIf(len(f.TargetWWNs) != 0 && len(f.WWIDs) != 0, at.Child("targetWWNs"), f.TargetWWNs,
			"targetWWNs and wwids can not be specified simultaneously"))
	if len(f.TargetWWNs) == 0 {
		return errs
	}
	if f.Lun == nil {
		return append(errs, field.Required(at.Child("lun"), "lun is required if targetWWNs is specified"))
	}
	return append(errs, field.InRange(at.Child("lun"), int64(*f.Lun), 0, 255)...)
}

func validateAzureDisk(d *corev1.AzureDiskVolumeSource, at *field.Path) field.ErrorList {
	errs := field.NotEmpty(at.Child("diskName"), d.DiskName)
	errs = append(errs, field.NotEmpty(at.Child("diskURI"), d.DataDiskURI)...)
	errs = append(errs, field.OptionalOneOf(at.Child("cachingMode"), d.CachingMode, corev1.AzureDataDiskCachingNone,
		corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)...)
	errs = append(errs, field.OptionalOneOf(at.Child("kind"), d.Kind, corev1.AzureDedicatedBlobDisk,
		corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)...)
	// The format of diskURI depends on the kind of the disk.
	managed := d.Kind != nil && *d.Kind == corev1.AzureManagedDisk
	switch {
	case managed && !strings.HasPrefix(d.DataDiskURI, "/subscriptions/"):
		errs = append(errs, field.NotSupported(at.Child("diskURI"), d.DataDiskURI,
			[]string{"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"}))
	case d.Kind != nil && !managed && !strings.HasPrefix(d.DataDiskURI, "https://"):
		errs = append(errs, field.NotSupported(at.Child("diskURI"), d.DataDiskURI,
			[]string{"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"}))
	}
	return errs
}

func validateStorageOSNames(name, namespace string, at *field.Path) field.ErrorList {
	errs := field.NotEmptyAnd(at.Child("volumeName"), name, field.DNSLabel)
	return append(errs, field.IfSet(at.Child("volumeNamespace"), namespace, field.DNSLabel)...)
}

func validateScaleIO(gateway, system, volume string, at *field.Path) field.ErrorList {
	errs := field.NotEmpty(at.Child("gateway"), gateway)
	errs = append(errs, field.NotEmpty(at.Child("system"), system)...)
	return append(errs, field.NotEmpty(at.Child("volumeName"), volume)...)
}

// validateFlex validates a flexVolume source. The kubelet passes options of its own to the driver, with keys
// such as kubernetes.io/fsType, which users must not replace.
func validateFlex(driver string, options map[string]string, at *field.Path) field.ErrorList {
	errs := field.NotEmpty(at.Child("driver"), driver)
	for key := range options {
		namespace := key
		if before, _, ok := strings.Cut(key, "/"); ok {
			namespace = before
		}
		normal := "." + strings.ToLower(namespace)
		errs = append(errs, field.InvalidIf(strings.HasSuffix(normal, ".kubernetes.io") ||
			strings.HasSuffix(normal, ".k8s.io"), at.Child("options").Key(key), key,
			"kubernetes.io and k8s.io namespaces are reserved")...)
	}
	return errs
}

// ValidateCSIDriverName validates the name of a CSI driver.
// The limit of 63 characters is in the CSI specification. Upper-case letters are allowed.
func ValidateCSIDriverName(name string, at *field.Path) field.ErrorList {
	const longest = 63
	var errs field.ErrorList
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	errs = append(errs, field.MaxLength(at, name, longest)...)
	return append(errs, field.Messages(at, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

// validateCSI validates the csi source of a pod. As in kube-apiserver, the path of an invalid name lacks
// nodePublishSecretRef.
func validateCSI(c *corev1.CSIVolumeSource, at *field.Path) field.ErrorList {
	errs := ValidateCSIDriverName(c.Driver, at.Child("driver"))
	if r := c.NodePublishSecretRef; r != nil {
		if r.Name == "" {
			errs = append(errs, field.Required(at.Child("nodePublishSecretRef", "name"), ""))
		} else {
			errs = append(errs, field.DNSSubdomain(at.Child("name"), r.Name)...)
		}
	}
	return errs
}

func validateKeyToPaths(items []corev1.KeyToPath, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range items {
		at := at.Index(i)
		errs = append(errs, field.NotEmpty(at.Child("key"), item.Key)...)
		errs = append(errs, field.NotEmpty(at.Child("path"), item.Path)...)
		errs = append(errs, validateLocalFilePath(at.Child("path"), item.Path)...)
		errs = append(errs, fileMode(at.Child("mode"), item.Mode)...)
		errs = append(errs, fileOwner(at.Child("user"), item.User)...)
	}
	return errs
}

// validateDownwardFile validates a file with a field or a resource of the pod. If both are set, only the field
// is validated.
func validateDownwardFile(f *corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	errs := field.NotEmpty(at.Child("path"), f.Path)
	errs = append(errs, validateLocalFilePath(at.Child("path"), f.Path)...)
	switch {
	case f.FieldRef != nil:
		errs = append(errs, validateFieldRef(f.FieldRef, fileFields, at.Child("fieldRef"))...)
		errs = append(errs, field.InvalidIf(f.ResourceFieldRef != nil, at, "resource",
			"fieldRef and resourceFieldRef can not be specified simultaneously")...)
	case f.ResourceFieldRef != nil:
		errs = append(errs, validateResourceFieldRef(f.ResourceFieldRef, at.Child("resourceFieldRef"), true)...)
	default:
		errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
	}
	errs = append(errs, fileMode(at.Child("mode"), f.Mode)...)
	return append(errs, fileOwner(at.Child("user"), f.User)...)
}

// validateEphemeral validates the template of a claim that is made for the pod and deleted with it (KEP-1698).
func validateEphemeral(e *corev1.EphemeralVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("volumeClaimTemplate")
	t := e.VolumeClaimTemplate
	if t == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := ValidateTemplateMetadata(&t.ObjectMeta, at.Child("metadata"))
	return append(errs, ValidatePersistentVolumeClaimSpec(&t.Spec, at.Child("spec"))...)
}

// ValidateTemplateMetadata validates the metadata in the template of a claim: it has labels and annotations only.
// Reflection makes sure that a field that is added to ObjectMeta later is refused too.
func ValidateTemplateMetadata(m *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(m.Annotations, path.Child("annotations").K8s())
	errs = append(errs, validateLabels(path.Child("labels"), m.Labels)...)
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name == "Annotations" || name == "Labels" || v.Field(i).IsZero() {
			continue
		}
		errs = append(errs, field.Forbidden(path.Child(strings.ToLower(name[:1])+name[1:]), "cannot be set"))
	}
	return errs
}

// ValidatePersistentVolumeClaimSpec validates the spec of a new claim or of a claim template.
func ValidatePersistentVolumeClaimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	return append(validateClaimSpec(s, at), validateSourceGroups(s, at)...)
}

// validateSourceGroups validates the API groups of the data sources. Updates of a claim that had an API group
// skip it: the rule is newer than such claims.
func validateSourceGroups(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if d := s.DataSource; d != nil {
		errs = append(errs, validateSourceGroup(d.APIGroup, at.Child("dataSource", "apiGroup"))...)
	}
	if r := s.DataSourceRef; r != nil {
		errs = append(errs, validateSourceGroup(r.APIGroup, at.Child("dataSourceRef", "apiGroup"))...)
	}
	return errs
}

// hasSourceGroup reports whether a data source has an API group.
func hasSourceGroup(s *corev1.PersistentVolumeClaimSpec) bool {
	return s.DataSource != nil && s.DataSource.APIGroup != nil || s.DataSourceRef != nil && s.DataSourceRef.APIGroup != nil
}

func validateSourceGroup(group *string, at *field.Path) field.ErrorList {
	return field.IfSet(at, ptr.Deref(group, ""), field.DNSSubdomain)
}

// validateClaimSpec validates the spec of a claim without the API groups of its data sources.
func validateClaimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	errs := field.LabelSelector(at.Child("selector"), s.Selector)
	modes := at.Child("accessModes")
	errs = append(errs, field.RequiredIf(len(s.AccessModes) == 0, modes, "at least 1 access mode is required")...)
	errs = append(errs, validateAccessModes(s.AccessModes, modes)...)
	storage := at.Child("resources").Key(string(corev1.ResourceStorage))
	if q, ok := s.Resources.Requests[corev1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(storage, ""))
	} else {
		if q.Sign() <= 0 {
			errs = append(errs, field.Invalid(storage, q.String(), mustBePositive))
		}
	}
	errs = append(errs, field.IfSet(at.Child("storageClassName"), ptr.Deref(s.StorageClassName, ""), field.DNSSubdomain)...)
	errs = append(errs, field.OptionalOneOf(at.Child("volumeMode"), s.VolumeMode, corev1.PersistentVolumeBlock,
		corev1.PersistentVolumeFilesystem)...)
	errs = append(errs, field.IfSet(at.Child("volumeAttributesClassName"), ptr.Deref(s.VolumeAttributesClassName, ""),
		field.DNSSubdomain)...)
	if d := s.DataSource; d != nil {
		errs = append(errs, validateDataSource(d.APIGroup, d.Kind, d.Name, at.Child("dataSource"))...)
	}
	if r := s.DataSourceRef; r != nil {
		path := at.Child("dataSourceRef")
		errs = append(errs, validateDataSource(r.APIGroup, r.Kind, r.Name, path)...)
		errs = append(errs, field.IfSet(path.Child("namespace"), ptr.Deref(r.Namespace, ""), field.DNSLabel)...)
	}
	return append(errs, validateSourcesAgree(s, at)...)
}

// validateSourcesAgree requires equal data sources in both fields. With a namespace in dataSourceRef,
// dataSource must be empty, because it cannot name a namespace.
func validateSourcesAgree(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	r := s.DataSourceRef
	// kube-apiserver passes the path as the value of the error, which appears as {}.
	nothing := json.RawMessage("{}")
	if r != nil && r.Namespace != nil && *r.Namespace != "" {
		return field.InvalidIf(s.DataSource != nil, at, nothing,
			"may not be specified when dataSourceRef.namespace is specified")
	}
	if s.DataSource == nil || r == nil {
		return nil
	}
	d := s.DataSource
	return field.InvalidIf(d.Kind != r.Kind || d.Name != r.Name || !ptr.Equal(d.APIGroup, r.APIGroup), at, nothing,
		"must match dataSourceRef")
}

func validateDataSource(group *string, kind, name string, at *field.Path) field.ErrorList {
	errs := field.NotEmpty(at.Child("name"), name)
	errs = append(errs, field.NotEmpty(at.Child("kind"), kind)...)
	return append(errs, field.InvalidIf((group == nil || *group == "") && kind != "PersistentVolumeClaim", at, kind,
		"must be 'PersistentVolumeClaim' when referencing the default apiGroup")...)
}

// validateAccessModes validates access modes. ReadWriteOncePod (KEP-2485) allows one pod in the whole cluster
// to use the volume, which the other modes contradict.
func validateAccessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	alone, shared := false, false
	for _, m := range modes {
		unknown := field.OneOf(at, m, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		errs = append(errs, unknown...)
		alone = alone || m == corev1.ReadWriteOncePod
		shared = shared || m != corev1.ReadWriteOncePod && len(unknown) == 0
	}
	return append(errs, field.ForbiddenIf(alone && shared, at, "may not use ReadWriteOncePod with other access modes")...)
}
