package apps

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func statefulSet(inPods core.PodGates, gates features.Gates) *registry.Kind {
	disabled := declare.DisabledOf(gates, declare.Part(features.MaxUnavailableStatefulSet,
		func(s *appsv1.StatefulSet) bool {
			u := s.Spec.UpdateStrategy.RollingUpdate
			return u != nil && u.MaxUnavailable != nil
		},
		func(s *appsv1.StatefulSet) {
			if u := s.Spec.UpdateStrategy.RollingUpdate; u != nil {
				u.MaxUnavailable = nil
			}
		}))
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "apps", Resource: "statefulsets", Name: "StatefulSet", ShortNames: []string{"sts"},
			Categories: []string{"all"}, Namespaced: true,
		},
		Versions: []registry.Version{declare.Version[appsv1.StatefulSet]("v1", defaultStatefulSet)},
		Storage: registry.Storage{
			Version: "v1", Path: "statefulsets", AfterDecode: registry.Defaulter(setClaimTemplateTypes),
		},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Metadata: registry.Metadata{
			// The hostnames of pods contain the name.
			ValidateName: apivalidation.NameIsDNSLabel,
		},
		Subresources: []registry.Subresource{
			declare.Scale(func(s *appsv1.StatefulSet) (int32, int32, string) {
				return replicas(s.Spec.Replicas), s.Status.Replicas, table.Selector(s.Spec.Selector)
			}, func(s *appsv1.StatefulSet, n int32) { s.Spec.Replicas = &n }),
			declare.Status(),
		},
		Strategy: registry.Strategy[*appsv1.StatefulSet]{
			Generation: true,
			PrepareCreate: func(s *appsv1.StatefulSet) {
				inPods.DropNew(&s.Spec.Template.Spec)
				disabled.DropNew(s)
			},
			PrepareUpdate: func(s, old *appsv1.StatefulSet) {
				inPods.Drop(&s.Spec.Template.Spec, &old.Spec.Template.Spec)
				disabled.Drop(s, old)
			},
			Validate:             validateStatefulSet,
			ValidateCreate:       validateImmutableFields,
			ValidateUpdate:       validateStatefulSetUpdate,
			ValidateStatusUpdate: validateStatefulSetStatus,
			Warn:                 statefulSetWarnings,
		}.Untyped(),
		Table: registry.Table[*appsv1.StatefulSet]{
			Columns: table.WithTemplate("",
				table.Name,
				table.Column("Ready", "string", "Number of the pod with ready state"),
				table.Age),
			Cells: func(s *appsv1.StatefulSet) []any {
				names, images := core.ContainerNames(&s.Spec.Template.Spec)
				return []any{
					s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, replicas(s.Spec.Replicas)),
					table.AgeOf(s.CreationTimestamp), names, images,
				}
			},
		}.Untyped(),
	}
}

func validateStatefulSetUpdate(s, old *appsv1.StatefulSet) field.ErrorList {
	if equality.Semantic.DeepEqual(immutableFields(&s.Spec), immutableFields(&old.Spec)) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"),
		"updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "+
			"'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")}
}

// statefulSetWarnings returns the warnings about s; old is nil for a create.
func statefulSetWarnings(s, old *appsv1.StatefulSet) []string {
	var warnings []string
	if old == nil || s.Generation != old.Generation {
		warnings = templateWarnings(&s.Spec.Template)
	}
	if n := s.Spec.RevisionHistoryLimit; n != nil && *n < 0 {
		warnings = append(warnings, field.NewPath("spec", "revisionHistoryLimit").String()+
			": a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return warnings
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	declare.Value(&s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	strategy := &s.Spec.UpdateStrategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		if strategy.RollingUpdate == nil {
			strategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{}
		}
	}
	if strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && strategy.RollingUpdate != nil {
		declare.Pointer(&strategy.RollingUpdate.Partition, 0)
	}
	if s.Spec.PersistentVolumeClaimRetentionPolicy == nil {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{}
	}
	policy := s.Spec.PersistentVolumeClaimRetentionPolicy
	declare.Value(&policy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	declare.Value(&policy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	declare.Pointer(&s.Spec.Replicas, 1)
	declare.Pointer(&s.Spec.RevisionHistoryLimit, 10)
	core.DefaultPodTemplate(&s.Spec.Template)
	setClaimTemplateTypes(s)
	for i := range s.Spec.VolumeClaimTemplates {
		claim := &s.Spec.VolumeClaimTemplates[i]
		core.DefaultPersistentVolumeClaimSpec(&claim.Spec)
		declare.Value(&claim.Status.Phase, corev1.ClaimPending)
	}
}

// setClaimTemplateTypes sets apiVersion and kind of claim templates, which protobuf does not
// encode.
func setClaimTemplateTypes(s *appsv1.StatefulSet) {
	for i := range s.Spec.VolumeClaimTemplates {
		s.Spec.VolumeClaimTemplates[i].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
	}
}

// immutableFields returns a copy of the spec without the fields that may be updated, and
// without the types of claim templates, which are not stored.
func immutableFields(s *appsv1.StatefulSetSpec) appsv1.StatefulSetSpec {
	fixed := appsv1.StatefulSetSpec{Selector: s.Selector, ServiceName: s.ServiceName,
		PodManagementPolicy: s.PodManagementPolicy}
	for _, claim := range s.VolumeClaimTemplates {
		claim.TypeMeta = metav1.TypeMeta{}
		fixed.VolumeClaimTemplates = append(fixed.VolumeClaimTemplates, claim)
	}
	return fixed
}
