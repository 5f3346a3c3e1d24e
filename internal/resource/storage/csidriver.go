package storage

import (
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// csiDriver returns the kind of CSIDrivers. The vendor of a driver creates one; the kubelet, the scheduler and the
// attach-detach controller read how they have to treat its volumes.
func csiDriver(gates features.Gates) *registry.Kind {
	disabled := disabledInCSIDriver(gates)
	scaling, mountLabels := gates.Enabled(features.VolumeLimitScaling), gates.Enabled(features.SELinuxMountReadWriteOncePod)
	tokenSecrets := gates.Enabled(features.CSIServiceAccountTokenSecrets)
	var defaultOnRead [][]int32
	if scaling { // older releases have stored drivers without preventPodSchedulingIfMissing
		// The path is spec.preventPodSchedulingIfMissing.
		defaultOnRead = [][]int32{{2, 11}}
	}
	spec := storagev1.CSIDriverSpec{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{Group: group, Package: "storage", Resource: "csidrivers", Name: "CSIDriver"},
		Versions: []registry.Version{declare.Version("v1", func(d *storagev1.CSIDriver) {
			defaultCSIDriver(d)
			if mountLabels {
				declare.Pointer(&d.Spec.SELinuxMount, false)
			}
			if scaling {
				declare.Pointer(&d.Spec.PreventPodSchedulingIfMissing, false)
			}
		})},
		Storage:  registry.Storage{Version: "v1", Path: "csidrivers", DefaultOnRead: defaultOnRead},
		Requests: registry.Requests{ReturnDeleted: true},
		Strategy: registry.Strategy[*storagev1.CSIDriver]{
			PrepareCreate: disabled.DropNew,
			PrepareUpdate: func(d, old *storagev1.CSIDriver) {
				disabled.Drop(d, old)
				// A new CSIDriver has no generation; the first change sets it to 1.
				if !equality.Semantic.DeepEqual(d.Spec, old.Spec) {
					d.Generation = old.Generation + 1
				}
			},
			ValidateCreate: func(d *storagev1.CSIDriver) field.ErrorList {
				return validateCSIDriverSpec(&d.Spec, field.NewPath("spec"))
			},
			ValidateUpdate: validateCSIDriverUpdate,
			Warn: func(d, old *storagev1.CSIDriver) []string {
				// Without the field, the kubelet passes tokens in the volume context, which a driver may write to
				// its log.
				if !tokenSecrets || len(d.Spec.TokenRequests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil {
					return nil
				}
				if old != nil && equality.Semantic.DeepEqual(d.Spec.TokenRequests, old.Spec.TokenRequests) {
					return nil
				}
				return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to " +
					"true to prevent possible logging of tokens in volume attributes"}
			},
		}.Untyped(),
		Table: registry.Table[*storagev1.CSIDriver]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("AttachRequired", "boolean", spec["attachRequired"]),
				table.Column("PodInfoOnMount", "boolean", spec["podInfoOnMount"]),
				table.Column("StorageCapacity", "boolean", spec["storageCapacity"]),
				table.Column("TokenRequests", "string", spec["tokenRequests"]),
				table.Column("RequiresRepublish", "boolean", spec["requiresRepublish"]),
				table.Column("Modes", "string", spec["volumeLifecycleModes"]),
				table.Age,
			},
			Cells: csiDriverCells,
		}.Untyped(),
	}
}

// defaultCSIDriver sets the defaults that need no gate. They describe a driver that says nothing about itself: its
// volumes are attached before they are mounted, and are volumes of claims.
func defaultCSIDriver(d *storagev1.CSIDriver) {
	declare.Pointer(&d.Spec.AttachRequired, true)
	declare.Pointer(&d.Spec.PodInfoOnMount, false)
	declare.Pointer(&d.Spec.StorageCapacity, false)
	declare.Pointer(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	if len(d.Spec.VolumeLifecycleModes) == 0 {
		d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	declare.Pointer(&d.Spec.RequiresRepublish, false)
}

// disabledInCSIDriver returns the fields with a gate. A field keeps its value on update if the old driver has one,
// so that a gate can be turned off without a change of stored drivers.
func disabledInCSIDriver(gates features.Gates) declare.Disabled[*storagev1.CSIDriver] {
	return declare.DisabledOf(gates,
		declare.Part(features.VolumeLimitScaling,
			func(d *storagev1.CSIDriver) bool { return d.Spec.PreventPodSchedulingIfMissing != nil },
			func(d *storagev1.CSIDriver) { d.Spec.PreventPodSchedulingIfMissing = nil }),
		declare.Part(features.CSIServiceAccountTokenSecrets,
			func(d *storagev1.CSIDriver) bool { return d.Spec.ServiceAccountTokenInSecrets != nil },
			func(d *storagev1.CSIDriver) { d.Spec.ServiceAccountTokenInSecrets = nil }),
		declare.Part(features.MutableCSINodeAllocatableCount,
			func(d *storagev1.CSIDriver) bool { return d.Spec.NodeAllocatableUpdatePeriodSeconds != nil },
			func(d *storagev1.CSIDriver) { d.Spec.NodeAllocatableUpdatePeriodSeconds = nil }),
		declare.Part(features.SELinuxMountReadWriteOncePod,
			func(d *storagev1.CSIDriver) bool { return d.Spec.SELinuxMount != nil },
			func(d *storagev1.CSIDriver) { d.Spec.SELinuxMount = nil }),
	)
}

func csiDriverCells(d *storagev1.CSIDriver) []any {
	tokens := table.Unset
	if requests := d.Spec.TokenRequests; requests != nil {
		tokens = strings.Join(declare.Texts(requests, func(r storagev1.TokenRequest) string { return r.Audience }), ",")
	}
	modes := declare.Texts(d.Spec.VolumeLifecycleModes, func(m storagev1.VolumeLifecycleMode) string { return string(m) })
	return []any{
		d.Name, ptr.Deref(d.Spec.AttachRequired, true), ptr.Deref(d.Spec.PodInfoOnMount, false),
		ptr.Deref(d.Spec.StorageCapacity, false), tokens, ptr.Deref(d.Spec.RequiresRepublish, false),
		table.OrNone(strings.Join(modes, ",")), table.AgeOf(d.CreationTimestamp),
	}
}
