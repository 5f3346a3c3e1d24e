package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

const (
	// storageClassAnnotation and mountOptionsAnnotation are older than the fields storageClassName and
	// mountOptions, and still have an effect. If annotation and field have a storage class, the annotation is
	// used.
	storageClassAnnotation = corev1.BetaStorageClassAnnotation
	mountOptionsAnnotation = corev1.MountOptionAnnotation
)

func persistentVolumes(gates features.Gates) *registry.Kind {
	movable := gates.Enabled(features.MutablePVNodeAffinity)
	spec, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "persistentvolumes", Name: "PersistentVolume", ShortNames: []string{"pv"},
		},
		Versions: onlyV1[corev1.PersistentVolume](defaultPersistentVolume),
		Storage:  registry.Storage{Version: "v1", Path: "persistentvolumes"},
		Requests: registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaNew},
		Finalizers: []registry.Finalizer{
			{
				Name:    "kubernetes.io/pv-protection",
				Remover: "the PV protection controller of kube-controller-manager", When: "when the volume is bound to no claim",
			},
			{
				Name:    "kubernetes.io/pv-controller",
				Remover: "the persistent volume controller of kube-controller-manager", When: "when the storage behind the volume is deleted",
			},
			{
				Name:    "external-provisioner.volume.kubernetes.io/finalizer",
				Remover: "the external-provisioner of the CSI driver", When: "when the storage behind the volume is deleted",
			},
		},
		Subresources: []registry.Subresource{declare.Status()},
		Strategy: registry.Strategy[*corev1.PersistentVolume]{
			PrepareCreate: func(v *corev1.PersistentVolume) {
				v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: ptr.To(now())}
			},
			PrepareStatusUpdate: recordPhaseChange,
			ValidateCreate:      validatePersistentVolume,
			ValidateUpdate: func(v, old *corev1.PersistentVolume) field.ErrorList {
				return validatePersistentVolumeUpdate(v, old, movable)
			},
			Warn: persistentVolumeWarnings,
		}.Untyped(),
		Table: registry.Table[*corev1.PersistentVolume]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Capacity", "string", spec["capacity"]),
				table.Column("Access Modes", "string", spec["accessModes"]),
				table.Column("Reclaim Policy", "string", spec["persistentVolumeReclaimPolicy"]),
				table.Column("Status", "string", status["phase"]),
				table.Column("Claim", "string", spec["claimRef"]),
				table.Column("StorageClass", "string", "StorageClass of the pv"),
				table.Column("VolumeAttributesClass", "string", "VolumeAttributesClass of the pv"),
				table.Column("Reason", "string", status["reason"]),
				table.Age,
				table.Wide("VolumeMode", "string", spec["volumeMode"]),
			},
			Cells: persistentVolumeCells,
		}.Untyped(),
	}
}

// recordPhaseChange sets the time at which the phase changed, unless the client did.
// A client that sends back the old time has read the object and not set the time itself (KEP-3762). A client
// that does not know the field sends none, and keeps the old time.
func recordPhaseChange(v, old *corev1.PersistentVolume) {
	t, before := &v.Status.LastPhaseTransitionTime, old.Status.LastPhaseTransitionTime
	switch {
	case v.Status.Phase != old.Status.Phase && (*t == nil || (*t).Equal(before)):
		*t = ptr.To(now())
	case *t == nil:
		*t = before
	}
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	declare.Value(&v.Status.Phase, corev1.VolumePending)
	declare.Value(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	declare.Pointer(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	DefaultPersistentVolumeSource(&v.Spec)
}

// DefaultPersistentVolumeSource sets the defaults of the source of a volume, and rounds its capacity.
// The defaults of sources are those of volumes in pods: see defaultVolume.
func DefaultPersistentVolumeSource(v *corev1.PersistentVolumeSpec) {
	declare.RoundUp(v.Capacity)
	if s := v.HostPath; s != nil {
		declare.Pointer(&s.Type, corev1.HostPathUnset)
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
}

// persistentVolumeCells shows Terminating for a volume that is being deleted; the phase in the API does not
// have this value.
func persistentVolumeCells(v *corev1.PersistentVolume) []any {
	phase := string(v.Status.Phase)
	if v.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	claim := ""
	if r := v.Spec.ClaimRef; r != nil {
		claim = r.Namespace + "/" + r.Name
	}
	class := v.Spec.StorageClassName
	if a, ok := v.Annotations[storageClassAnnotation]; ok {
		class = a
	}
	return []any{
		v.Name, quantityOf(v.Spec.Capacity, corev1.ResourceStorage), accessModes(v.Spec.AccessModes),
		string(v.Spec.PersistentVolumeReclaimPolicy), phase, claim, class, orUnsetPointer(v.Spec.VolumeAttributesClassName),
		v.Status.Reason, table.AgeOf(v.CreationTimestamp), orUnsetPointer(v.Spec.VolumeMode),
	}
}

func quantityOf(list corev1.ResourceList, name corev1.ResourceName) string {
	q := list[name]
	return q.String()
}

func orUnsetPointer[S ~string](p *S) string { return string(ptr.Deref(p, table.Unset)) }

// accessModes returns the short names of access modes in a fixed order, without duplicates.
// The short names are those of kubectl get, such as RWO,ROX.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var out []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"},
		{corev1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(modes, m.mode) {
			out = append(out, m.short)
		}
	}
	return strings.Join(out, ",")
}

func persistentVolumeClaims(gates features.Gates) *registry.Kind {
	crossNamespace := gates.Enabled(features.CrossNamespaceVolumeDataSource)
	disabled := declare.DisabledOf(gates, declare.Part(features.CSIVolumeHealth,
		func(c *corev1.PersistentVolumeClaim) bool { return c.Status.HealthStatus != nil },
		func(c *corev1.PersistentVolumeClaim) { c.Status.HealthStatus = nil }))
	spec, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(), corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "persistentvolumeclaims", Name: "PersistentVolumeClaim",
			ShortNames: []string{"pvc"}, Namespaced: true,
		},
		Versions: onlyV1[corev1.PersistentVolumeClaim](DefaultPersistentVolumeClaim),
		Storage: registry.Storage{
			Version: "v1", Path: "persistentvolumeclaims",
			// The phase of a new claim is not stored.
			DefaultOnRead: [][]int32{{3, 1}},
		},
		Requests: registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Finalizers: []registry.Finalizer{
			{
				Name:    "kubernetes.io/pvc-protection",
				Remover: "the PVC protection controller of kube-controller-manager", When: "when no pod uses the claim",
			},
			{
				Name:    "snapshot.storage.kubernetes.io/pvc-as-source-protection",
				Remover: "the snapshot controller", When: "when no snapshot is being made of the claim",
			},
		},
		Subresources: []registry.Subresource{declare.Status()},
		Strategy: registry.Strategy[*corev1.PersistentVolumeClaim]{
			PrepareCreate: func(c *corev1.PersistentVolumeClaim) {
				c.Status = corev1.PersistentVolumeClaimStatus{}
				if !crossNamespace {
					dropCrossNamespaceDataSource(&c.Spec)
				}
				dropUnsupportedDataSource(&c.Spec)
				syncDataSources(&c.Spec)
			},
			PrepareUpdate: func(c, old *corev1.PersistentVolumeClaim) {
				if !crossNamespace && old.Spec.DataSourceRef == nil {
					dropCrossNamespaceDataSource(&c.Spec)
				}
				// A source that is stored stays, and validation refuses its change, because the spec is
				// immutable.
				if old.Spec.DataSource == nil && old.Spec.DataSourceRef == nil {
					dropUnsupportedDataSource(&c.Spec)
				}
				syncDataSources(&c.Spec)
			},
			PrepareStatusUpdate: disabled.Drop,
			ValidateCreate: func(o *corev1.PersistentVolumeClaim) field.ErrorList {
				return ValidatePersistentVolumeClaimSpec(&o.Spec, field.NewPath("spec"))
			},
			ValidateUpdate:       validatePersistentVolumeClaimUpdate,
			ValidateStatusUpdate: validatePersistentVolumeClaimStatus,
			Warn:                 persistentVolumeClaimWarnings,
		}.Untyped(),
		Table: registry.Table[*corev1.PersistentVolumeClaim]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Status", "string", status["phase"]),
				table.Column("Volume", "string", spec["volumeName"]),
				table.Column("Capacity", "string", status["capacity"]),
				table.Column("Access Modes", "string", status["accessModes"]),
				table.Column("StorageClass", "string", "StorageClass of the pvc"),
				table.Column("VolumeAttributesClass", "string", "VolumeAttributesClass of the pvc"),
				table.Age,
				table.Wide("VolumeMode", "string", spec["volumeMode"]),
			},
			Cells: persistentVolumeClaimCells,
		}.Untyped(),
	}
}

// DefaultPersistentVolumeClaim sets the defaults of a PersistentVolumeClaim, or of a claim
// template of a StatefulSet.
func DefaultPersistentVolumeClaim(c *corev1.PersistentVolumeClaim) {
	DefaultPersistentVolumeClaimSpec(&c.Spec)
	declare.Value(&c.Status.Phase, corev1.ClaimPending)
	declare.RoundUp(c.Status.Capacity)
	declare.RoundUp(c.Status.AllocatedResources)
}

// dropCrossNamespaceDataSource removes a data source in another namespace.
// The gate is CrossNamespaceVolumeDataSource (KEP-3294). An update keeps the source of a claim that has one
// already.
func dropCrossNamespaceDataSource(s *corev1.PersistentVolumeClaimSpec) {
	if inOtherNamespace(s.DataSourceRef) {
		s.DataSourceRef = nil
	}
}

func inOtherNamespace(r *corev1.TypedObjectReference) bool {
	return r != nil && r.Namespace != nil && *r.Namespace != ""
}

// dropUnsupportedDataSource removes a dataSource that is neither a claim nor a snapshot. This
// field has always ignored other kinds, in contrast to dataSourceRef. Together with a dataSourceRef,
// it is kept and compared with that.
func dropUnsupportedDataSource(s *corev1.PersistentVolumeClaimSpec) {
	d := s.DataSource
	if d == nil || s.DataSourceRef != nil {
		return
	}
	group := ptr.Deref(d.APIGroup, "")
	claim := d.Kind == "PersistentVolumeClaim" && group == ""
	snapshot := d.Kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io"
	if !claim && !snapshot {
		s.DataSource = nil
	}
}

// syncDataSources sets dataSource from dataSourceRef or the other way round, if one is
// missing.
// Clients that are older than dataSourceRef read and write only dataSource. A source in another namespace is
// not copied, because dataSource cannot express it: an old client would take it for an object in its own
// namespace.
func syncDataSources(s *corev1.PersistentVolumeClaimSpec) {
	switch {
	case s.DataSource != nil && s.DataSourceRef == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: s.DataSource.APIGroup, Kind: s.DataSource.Kind,
			Name: s.DataSource.Name}
	case s.DataSource == nil && s.DataSourceRef != nil && !inOtherNamespace(s.DataSourceRef):
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: s.DataSourceRef.APIGroup, Kind: s.DataSourceRef.Kind,
			Name: s.DataSourceRef.Name}
	}
}

func persistentVolumeClaimCells(c *corev1.PersistentVolumeClaim) []any {
	phase := string(c.Status.Phase)
	if c.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	var capacity, modes string
	if c.Spec.VolumeName != "" {
		modes, capacity = accessModes(c.Status.AccessModes), quantityOf(c.Status.Capacity, corev1.ResourceStorage)
	}
	class := ""
	if a, ok := c.Annotations[storageClassAnnotation]; ok {
		class = a
	} else if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	return []any{
		c.Name, phase, c.Spec.VolumeName, capacity, modes, class,
		orUnsetPointer(c.Spec.VolumeAttributesClassName), table.AgeOf(c.CreationTimestamp), orUnsetPointer(c.Spec.VolumeMode),
	}
}
