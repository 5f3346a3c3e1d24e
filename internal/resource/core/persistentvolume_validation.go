package core

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validatePersistentVolume validates a new volume.
func validatePersistentVolume(v *corev1.PersistentVolume) field.ErrorList {
	return append(validateVolumeObject(v, false), validateMountOptions(v)...)
}

// validatePersistentVolumeUpdate validates a changed volume. kube-apiserver applies the rules of the spec twice, and so
// reports each of their causes twice. With movable, the node affinity may change.
func validatePersistentVolumeUpdate(v, old *corev1.PersistentVolume, movable bool) field.ErrorList {
	errs := validateVolumeObject(v, hasInvalidNodeValues(old.Spec.NodeAffinity))
	var kept field.ErrorList
	if !movable {
		kept = validateNodeAffinityKept(v.Spec.NodeAffinity, old.Spec.NodeAffinity)
	}
	return field.Join(
		errs,
		errs,
		validateMountOptions(v),
		validateVolumeSourceKept(v, old),
		declare.Immutable(v.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode")),
		kept,
		field.ForbiddenIf(old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil,
			field.NewPath("spec", "volumeAttributesClassName"), "update from non-nil value to nil is forbidden"),
	)
}

// validateVolumeObject validates the spec of a volume. Values of labels in the node affinity may be invalid if they
// were so before.
func validateVolumeObject(v *corev1.PersistentVolume, anyNodeValues bool) field.ErrorList {
	s, at := &v.Spec, field.NewPath("spec")
	errs := validateVolumeAccessModes(s.AccessModes, at.Child("accessModes"))
	errs = append(errs, validateVolumeCapacity(s.Capacity, at.Child("capacity"))...)
	if s.PersistentVolumeReclaimPolicy != "" {
		errs = append(errs, field.OneOf(at.Child("persistentVolumeReclaimPolicy"), s.PersistentVolumeReclaimPolicy,
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle,
			corev1.PersistentVolumeReclaimRetain)...)
	}
	if a := s.NodeAffinity; a != nil {
		errs = append(errs, validateVolumeNodeAffinity(a, anyNodeValues, at.Child("nodeAffinity"))...)
	}
	errs = append(errs, validatePersistentVolumeSource(s, v.Name, at)...)
	// Recycling deletes all files of the volume, here those of the whole node.
	errs = append(errs, field.ForbiddenIf(s.HostPath != nil && path.Clean(s.HostPath.Path) == "/" &&
		s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle,
		at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")...)
	errs = append(errs, field.IfSet(at.Child("storageClassName"), s.StorageClassName, field.DNSSubdomain)...)
	errs = append(errs, field.OptionalOneOf(at.Child("volumeMode"), s.VolumeMode, corev1.PersistentVolumeBlock,
		corev1.PersistentVolumeFilesystem)...)
	return append(errs, validateVolumeAttributes(s, at)...)
}

// ValidateInlineVolume validates the volume in the spec of a VolumeAttachment: it has no claim, and a driver attaches
// it, so it has a csi source and none of the fields that matter to claims and the scheduler.
func ValidateInlineVolume(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	const inline = "in the context of inline volumes"
	var errs field.ErrorList
	forbid := func(name string, set bool) {
		errs = append(errs, field.ForbiddenIf(set, at.Child(name), "may not be specified "+inline)...)
	}
	forbid("claimRef", s.ClaimRef != nil)
	forbid("capacity", len(s.Capacity) != 0)
	errs = append(errs, field.RequiredIf(s.CSI == nil, at.Child("csi"), "has to be specified "+inline)...)
	errs = append(errs, validateVolumeAccessModes(s.AccessModes, at.Child("accessModes"))...)
	p := s.PersistentVolumeReclaimPolicy
	errs = append(errs, field.ForbiddenIf(p != "" && p != corev1.PersistentVolumeReclaimRetain,
		at.Child("persistentVolumeReclaimPolicy"), "may only be Retain "+inline)...)
	forbid("nodeAffinity", s.NodeAffinity != nil)
	errs = append(errs, validatePersistentVolumeSource(s, "", at)...)
	forbid("storageClassName", s.StorageClassName != "")
	if m := s.VolumeMode; m != nil && *m != corev1.PersistentVolumeFilesystem {
		errs = append(errs,
			field.Forbidden(at.Child("volumeMode"), "may not specify volumeMode other than Filesystem "+inline))
	}
	return errs
}

// validateVolumeAccessModes requires at least one access mode. Claims have the same rule with another message.
func validateVolumeAccessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	return validateAccessModes(modes, at)
}

// validateVolumeCapacity requires a storage size and nothing else.
func validateVolumeCapacity(capacity corev1.ResourceList, at *field.Path) field.ErrorList {
	errs := field.RequiredIf(len(capacity) == 0, at, "")
	if _, ok := capacity[corev1.ResourceStorage]; !ok || len(capacity) > 1 {
		errs = append(errs, field.NotSupported(at, capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for name, q := range capacity {
		at := at.Key(string(name))
		errs = append(errs, validateBasicQuantity(q, at)...)
		if q.Sign() <= 0 {
			errs = append(errs, field.Invalid(at, q.String(), mustBePositive))
		}
	}
	return errs
}

// validateBasicQuantity returns an error for negative quantities.
func validateBasicQuantity(q resource.Quantity, at *field.Path) field.ErrorList {
	return field.InvalidIf(q.Value() < 0, at, q.Value(), "must be a valid resource quantity")
}

// validateVolumeNodeAffinity requires the part required: a volume has no preferred nodes. anyValues is true if
// the volume had invalid values before the update, and is older than the rule about them.
func validateVolumeNodeAffinity(a *corev1.VolumeNodeAffinity, anyValues bool, at *field.Path) field.ErrorList {
	if a.Required == nil {
		return field.ErrorList{field.Required(at.Child("required"), "must specify required node constraints")}
	}
	errs := ValidateNodeSelector(a.Required, at.Child("required"))
	if !anyValues {
		errs = append(errs, ValidateNodeSelectorValues(a.Required, at.Child("required"))...)
	}
	return errs
}

// hasInvalidNodeValues reports whether a node affinity has values that labels cannot have.
func hasInvalidNodeValues(a *corev1.VolumeNodeAffinity) bool {
	return a != nil && a.Required != nil && len(ValidateNodeSelectorValues(a.Required, nil)) > 0
}

// validateVolumeAttributes validates the name of a VolumeAttributesClass (KEP-3751). Only CSI drivers can
// modify volumes by such a class.
func validateVolumeAttributes(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	if s.VolumeAttributesClassName == nil {
		return nil
	}
	errs := field.RequiredAnd(at.Child("volumeAttributesClassName"), *s.VolumeAttributesClassName,
		"an empty string is disallowed", field.DNSSubdomain)
	return append(errs, field.RequiredIf(s.CSI == nil, at.Child("csi"),
		"has to be specified when using volumeAttributesClassName")...)
}

// validatePersistentVolumeSource requires exactly one source. kube-apiserver looks at the sources in this order, and
// validates the first one only.
func validatePersistentVolumeSource(v *corev1.PersistentVolumeSpec, name string, at *field.Path) field.ErrorList {
	s := &volumeSources{path: at, many: "may not specify more than 1 volume type"}
	s.add("hostPath", v.HostPath != nil, func(at *field.Path) field.ErrorList { return validateHostPath(v.HostPath, at) })
	s.addAs("persistentDisk", "gcePersistentDisk", v.GCEPersistentDisk != nil, func(at *field.Path) field.ErrorList {
		return append(field.NotEmpty(at.Child("pdName"), v.GCEPersistentDisk.PDName),
			validatePartition(v.GCEPersistentDisk.Partition, at)...)
	})
	s.add("awsElasticBlockStore", v.AWSElasticBlockStore != nil, func(at *field.Path) field.ErrorList {
		return append(field.NotEmpty(at.Child("volumeID"), v.AWSElasticBlockStore.VolumeID),
			validatePartition(v.AWSElasticBlockStore.Partition, at)...)
	})
	s.add("glusterfs", v.Glusterfs != nil,
		func(at *field.Path) field.ErrorList { return validateGlusterfs(v.Glusterfs, at) })
	s.add("flocker", v.Flocker != nil, func(at *field.Path) field.ErrorList { return validateFlocker(v.Flocker, at) })
	s.add("nfs", v.NFS != nil, func(at *field.Path) field.ErrorList { return validateNFS(v.NFS, at) })
	s.add("rbd", v.RBD != nil, func(at *field.Path) field.ErrorList {
		return append(field.RequiredIf(len(v.RBD.CephMonitors) == 0, at.Child("monitors"), ""),
			field.NotEmpty(at.Child("image"), v.RBD.RBDImage)...)
	})
	s.add("quobyte", v.Quobyte != nil, func(at *field.Path) field.ErrorList { return validateQuobyte(v.Quobyte, at) })
	s.addAs("cephfs", "cephFS", v.CephFS != nil,
		func(at *field.Path) field.ErrorList {
			return field.RequiredIf(len(v.CephFS.Monitors) == 0, at.Child("monitors"), "")
		})
	s.add("iscsi", v.ISCSI != nil, func(at *field.Path) field.ErrorList { return validateISCSIVolume(v.ISCSI, name, at) })
	s.add("cinder", v.Cinder != nil, func(at *field.Path) field.ErrorList {
		errs := field.NotEmpty(at.Child("volumeID"), v.Cinder.VolumeID)
		if r := v.Cinder.SecretRef; r != nil {
			errs = append(errs, requireSecret(r.Name, r.Namespace, at.Child("secretRef"))...)
		}
		return errs
	})
	s.add("fc", v.FC != nil, func(at *field.Path) field.ErrorList { return validateFC(v.FC, at) })
	// kube-apiserver accepts this source together with one that comes before it in this list.
	if f := v.FlexVolume; f != nil {
		s.n++
		s.errs = append(s.errs, validateFlex(f.Driver, f.Options, at.Child("flexVolume"))...)
	}
	s.add("azureFile", v.AzureFile != nil, func(at *field.Path) field.ErrorList {
		errs := field.NotEmpty(at.Child("secretName"), v.AzureFile.SecretName)
		errs = append(errs, field.NotEmpty(at.Child("shareName"), v.AzureFile.ShareName)...)
		return append(errs, field.Optional(at.Child("secretNamespace"), v.AzureFile.SecretNamespace, field.NotEmpty)...)
	})
	s.addDisks(v.VsphereVolume, v.PhotonPersistentDisk, v.PortworxVolume, v.AzureDisk)
	s.add("scaleIO", v.ScaleIO != nil, func(at *field.Path) field.ErrorList {
		return validateScaleIO(v.ScaleIO.Gateway, v.ScaleIO.System, v.ScaleIO.VolumeName, at)
	})
	s.add("local", v.Local != nil, func(own *field.Path) field.ErrorList {
		errs := validateLocalVolume(v.Local, own)
		return append(errs, field.RequiredIf(v.NodeAffinity == nil, at.Child("nodeAffinity"),
			"Local volume requires node affinity")...)
	})
	s.add("storageos", v.StorageOS != nil, func(at *field.Path) field.ErrorList {
		errs := validateStorageOSNames(v.StorageOS.VolumeName, v.StorageOS.VolumeNamespace, at)
		if r := v.StorageOS.SecretRef; r != nil {
			errs = append(errs, requireSecret(r.Name, r.Namespace, at.Child("secretRef"))...)
		}
		return errs
	})
	s.add("csi", v.CSI != nil, func(at *field.Path) field.ErrorList { return validateCSIVolume(v.CSI, at) })
	return append(s.errs, field.RequiredIf(s.n == 0, at, "must specify a volume type")...)
}

// validateGlusterfs validates a glusterfs source. Unlike in a pod, the namespace of the endpoints may be named,
// because a volume has no namespace.
func validateGlusterfs(g *corev1.GlusterfsPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := field.NotEmpty(at.Child("endpoints"), g.EndpointsName)
	errs = append(errs, field.NotEmpty(at.Child("path"), g.Path)...)
	if n := g.EndpointsNamespace; n != nil {
		at := at.Child("endpointsNamespace")
		if *n == "" {
			return append(errs, field.Invalid(at, *n, "if the endpointnamespace is set, it must be a valid namespace name"))
		}
		errs = append(errs, field.Messages(at, *n, apivalidation.ValidateNamespaceName(*n, false))...)
	}
	return errs
}

// validateISCSIVolume validates the iscsi source of the volume of that name.
// With an initiator name, the node makes an iSCSI interface whose name has the volume and the portal in it: see
// initiatorName in the API. Hence the limit of 64 characters for both.
func validateISCSIVolume(i *corev1.ISCSIPersistentVolumeSource, name string, at *field.Path) field.ErrorList {
	const longest = 64
	errs := field.InvalidIf(i.InitiatorName != nil && len(name+":"+i.TargetPortal) > longest, at.Child("targetportal"),
		i.TargetPortal, iscsiTooLong)
	errs = append(errs, validateISCSI(i.TargetPortal, i.IQN, i.Lun, i.InitiatorName, i.DiscoveryCHAPAuth ||
		i.SessionCHAPAuth, i.SecretRef != nil, at, iscsiFormat)...)
	if r := i.SecretRef; r != nil {
		errs = append(errs, field.NotEmpty(at.Child("secretRef", "name"), r.Name)...)
	}
	return errs
}

func validateLocalVolume(l *corev1.LocalVolumeSource, at *field.Path) field.ErrorList {
	return field.NotEmptyAnd(at.Child("path"), l.Path, noBacksteps)
}

// validateCSIVolume validates a csi source. kube-apiserver does not validate nodeStageSecretRef.
// Secrets need a namespace here: a volume has none that could be the default.
func validateCSIVolume(c *corev1.CSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := ValidateCSIDriverName(c.Driver, at.Child("driver"))
	errs = append(errs, field.NotEmpty(at.Child("volumeHandle"), c.VolumeHandle)...)
	secret := func(name string, r *corev1.SecretReference) {
		if r == nil {
			return
		}
		at := at.Child(name)
		errs = append(errs, requireSecret(r.Name, r.Namespace, at)...)
		errs = append(errs, field.IfSet(at.Child("name"), r.Name, field.DNSSubdomain)...)
		errs = append(errs, field.IfSet(at.Child("namespace"), r.Namespace, field.DNSLabel)...)
	}
	secret("controllerPublishSecretRef", c.ControllerPublishSecretRef)
	secret("controllerExpandSecretRef", c.ControllerExpandSecretRef)
	secret("nodePublishSecretRef", c.NodePublishSecretRef)
	secret("nodeExpandSecretRef", c.NodeExpandSecretRef)
	return errs
}

// requireSecret requires the name and the namespace of a secret.
func requireSecret(name, namespace string, at *field.Path) field.ErrorList {
	return append(field.NotEmpty(at.Child("name"), name), field.NotEmpty(at.Child("namespace"), namespace)...)
}

// validateMountOptions refuses the annotation with mount options for volumes that are not mounted with options.
// A csi volume is not in the list: it uses the field spec.mountOptions.
func validateMountOptions(v *corev1.PersistentVolume) field.ErrorList {
	if _, ok := v.Annotations[mountOptionsAnnotation]; !ok {
		return nil
	}
	s := &v.Spec
	if s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Glusterfs != nil || s.NFS != nil || s.RBD != nil ||
		s.Quobyte != nil || s.ISCSI != nil || s.Cinder != nil || s.CephFS != nil || s.AzureFile != nil ||
		s.VsphereVolume != nil || s.AzureDisk != nil || s.PhotonPersistentDisk != nil {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "annotations", mountOptionsAnnotation),
		"may not specify mount options for this volume type")}
}

// validateVolumeSourceKept forbids changes of the source, but for a controllerExpandSecretRef that was missing.
// A secret for expansion may be added later, so that a volume of before can be expanded. Its removal is
// refused.
func validateVolumeSourceKept(v, old *corev1.PersistentVolume) field.ErrorList {
	is, was := v.Spec.PersistentVolumeSource, old.Spec.PersistentVolumeSource
	if is.CSI != nil && was.CSI != nil && was.CSI.ControllerExpandSecretRef == nil {
		csi := *is.CSI
		csi.ControllerExpandSecretRef = nil
		is.CSI = &csi
	}
	if equality.Semantic.DeepEqual(is, was) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
		"spec.persistentvolumesource is immutable after creation\n"+declare.Diff(was, is))}
}

// replacedNodeLabels are the beta labels of nodes that may be replaced by the standard ones in the node affinity.
// kube-apiserver allows to replace them, but only in this direction, and only the key: nodes had both labels
// with the same value.
var replacedNodeLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
}

// validateNodeAffinityKept forbids changes of a node affinity, except that beta labels may be replaced.
func validateNodeAffinityKept(is, was *corev1.VolumeNodeAffinity) field.ErrorList {
	if was == nil || sameNodeAffinity(is, was) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("nodeAffinity"), declare.Internal(is),
		"field is immutable, except for updating from beta label to GA")}
}

// sameNodeAffinity reports whether two node affinities are equal except for replaced labels. Terms and
// requirements must be in the same order.
func sameNodeAffinity(is, was *corev1.VolumeNodeAffinity) bool {
	if equality.Semantic.DeepEqual(is, was) {
		return true
	}
	if is == nil || is.Required == nil || was.Required == nil {
		return false
	}
	return slices.EqualFunc(is.Required.NodeSelectorTerms, was.Required.NodeSelectorTerms,
		func(is, was corev1.NodeSelectorTerm) bool {
			return slices.EqualFunc(is.MatchFields, was.MatchFields, sameNodeRequirement) &&
				slices.EqualFunc(is.MatchExpressions, was.MatchExpressions, sameNodeRequirement)
		})
}

// sameNodeRequirement takes an empty key, which other rules refuse, for the old one, as kube-apiserver does.
func sameNodeRequirement(is, was corev1.NodeSelectorRequirement) bool {
	if is.Key == replacedNodeLabels[was.Key] {
		is.Key = was.Key
	}
	return equality.Semantic.DeepEqual(is, was)
}

// ValidateNodeSelectorValues returns errors for values that labels cannot have.
func ValidateNodeSelectorValues(s *corev1.NodeSelector, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range s.NodeSelectorTerms {
		for j, r := range s.NodeSelectorTerms[i].MatchExpressions {
			for k, value := range r.Values {
				for _, message := range validation.IsValidLabelValue(value) {
					path := at.Child("nodeSelectorTerms").Index(i).Child("matchExpressions").Index(j).Child("values").Index(k)
					errs = append(errs, field.Invalid(path, value, message))
				}
			}
		}
	}
	return errs
}
