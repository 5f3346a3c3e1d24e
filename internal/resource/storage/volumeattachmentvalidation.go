package storage

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// The limits of the status of a VolumeAttachment, in bytes.
const (
	maxAttachmentMetadata = 256 << 10
	maxVolumeErrorMessage = 1024
)

// validateNewVolumeAttachment validates the attacher by declared rules (KEP-5073), whose errors come after all
// others. An update validates the attacher by the older rule for names of CSI drivers.
func validateNewVolumeAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	const longestAttacher = 63
	var declared declare.Rules
	path := field.NewPath("spec", "attacher").K8s()
	if !declared.Required(a.Spec.Attacher == "", path) {
		declare.Check(&declared, validate.LongNameCaseless[string], &a.Spec.Attacher, path)
		declared.Add(validate.MaxLength(context.Background(), operation.Operation{}, path, &a.Spec.Attacher, nil, longestAttacher)...)
	}
	return append(validateVolumeAttachment(a), declared.Errs...)
}

// validateVolumeAttachment validates all but the attacher.
func validateVolumeAttachment(a *storagev1.VolumeAttachment) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	errs = append(errs, validateAttachmentSource(&a.Spec.Source, spec.Child("source"))...)
	errs = append(errs, field.Optional(spec.Child("source", "persistentVolumeName"), a.Spec.Source.PersistentVolumeName,
		field.DNSSubdomain)...)
	errs = append(errs, field.DNSSubdomain(spec.Child("nodeName"), a.Spec.NodeName)...)
	return append(errs, validateAttachmentStatus(&a.Status, field.NewPath("status"))...)
}

// validateVolumeAttachmentUpdate validates updates of the object and of its status. The spec cannot change:
// another volume or another node needs another VolumeAttachment.
func validateVolumeAttachmentUpdate(a, old *storagev1.VolumeAttachment) field.ErrorList {
	path := field.NewPath("spec")
	errs := core.ValidateCSIDriverName(a.Spec.Attacher, path.Child("attacher"))
	errs = append(errs, validateVolumeAttachment(a)...)
	return append(errs, declare.Unchanged(a.Spec, old.Spec, path)...)
}

// validateAttachmentSource requires one source. An inline volume is one in the spec of a pod that has no
// PersistentVolume: it is translated to a CSI volume when the driver in the tree was migrated to CSI.
func validateAttachmentSource(s *storagev1.VolumeAttachmentSource, path *field.Path) field.ErrorList {
	const one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	switch {
	case s.InlineVolumeSpec == nil && s.PersistentVolumeName == nil:
		return field.ErrorList{field.Required(path, one)}
	case s.InlineVolumeSpec != nil && s.PersistentVolumeName != nil:
		return field.ErrorList{field.Forbidden(path, one)}
	case s.InlineVolumeSpec != nil:
		return core.ValidateInlineVolume(s.InlineVolumeSpec, path.Child("inlineVolumeSpec"))
	case *s.PersistentVolumeName == "":
		return field.ErrorList{
			field.Required(path.Child("persistentVolumeName"), "must specify non empty persistentVolumeName"),
		}
	}
	return nil
}

func validateAttachmentStatus(s *storagev1.VolumeAttachmentStatus, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for name, value := range s.AttachmentMetadata {
		size += len(name) + len(value)
	}
	if size > maxAttachmentMetadata {
		errs = append(errs, field.TooLong(path.Child("attachmentMetadata"), "", maxAttachmentMetadata))
	}
	errs = append(errs, validateVolumeError(s.AttachError, path.Child("attachError"))...)
	return append(errs, validateVolumeError(s.DetachError, path.Child("detachError"))...)
}

func validateVolumeError(e *storagev1.VolumeError, path *field.Path) field.ErrorList {
	if e == nil {
		return nil
	}
	errs := field.MaxLength(path.Child("message"), e.Message, maxVolumeErrorMessage)
	return append(errs, field.AtLeast(path.Child("errorCode"), e.ErrorCode, 0,
		"must be between 0 and 2147483647, inclusive")...)
}
