package apps

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// statefulSet returns the kind of StatefulSets. Each pod has an identity: a name with an ordinal, a DNS name, and
// claims of its own. Rules that only this kind has protect the identity.
func statefulSet(inPods core.PodGates, gates features.Gates) *registry.Kind {
	maxUnavailable := gates.Enabled(features.MaxUnavailableStatefulSet)
	recreate := gates.Enabled(features.StatefulSetRecreateStrategy)
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
	var defaultOnRead [][]int32
	if maxUnavailable { // older releases have stored sets without it
		// The path is spec.updateStrategy.rollingUpdate.maxUnavailable.
		defaultOnRead = [][]int32{{2, 7, 2, 2}}
	}
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "apps", Resource: "statefulsets", Name: "StatefulSet", ShortNames: []string{"sts"},
			Categories: []string{"all"}, Namespaced: true,
		},
		RunBy: []string{registry.ControllerManager, registry.Scheduler},
		Versions: []registry.Version{declare.Version("v1", func(s *appsv1.StatefulSet) {
			defaultStatefulSet(s, maxUnavailable)
		})},
		Storage: registry.Storage{
			Version: "v1", Path: "statefulsets", AfterDecode: registry.Defaulter(setClaimTemplateTypes),
			DefaultOnRead: defaultOnRead,
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
				inPods.DropNew(&s.Spec.Template)
				disabled.DropNew(s)
			},
			PrepareUpdate: func(s, old *appsv1.StatefulSet) {
				inPods.Drop(&s.Spec.Template, &old.Spec.Template)
				disabled.Drop(s, old)
			},
			ValidateCreate: func(s *appsv1.StatefulSet) field.ErrorList {
				return append(validateStatefulSet(s, nil, recreate, &inPods), validateImmutableFields(s)...)
			},
			ValidateUpdate: func(s, old *appsv1.StatefulSet) field.ErrorList {
				// A set that already has the strategy Recreate can be updated after its gate is turned off.
				allowed := recreate || old.Spec.UpdateStrategy.Type == appsv1.RecreateStatefulSetStrategyType
				return append(validateStatefulSet(s, old, allowed, &inPods), validateStatefulSetUpdate(&s.Spec, &old.Spec)...)
			},
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

// validateStatefulSetUpdate forbids changes of the fields that give pods their identity: the labels by which the
// set finds them, the names and sizes of their claims, their DNS domain, and the order in which they start. The
// controller does not apply such a change to pods and claims that exist.
func validateStatefulSetUpdate(s, old *appsv1.StatefulSetSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := declare.Immutable(s.Selector, old.Selector, path.Child("selector"))
	errs = append(errs, declare.Immutable(claimTemplates(s), claimTemplates(old), path.Child("volumeClaimTemplates"))...)
	errs = append(errs, declare.Immutable(s.ServiceName, old.ServiceName, path.Child("serviceName"))...)
	return append(errs, declare.Immutable(s.PodManagementPolicy, old.PodManagementPolicy, path.Child("podManagementPolicy"))...)
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

// defaultStatefulSet sets the defaults of apps/v1. partition 0 updates all pods. The policy Retain keeps the
// claims of pods that are deleted, which was the only behavior before the field existed (KEP-1847).
func defaultStatefulSet(s *appsv1.StatefulSet, maxUnavailable bool) {
	declare.Value(&s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	strategy := &s.Spec.UpdateStrategy
	// If the client sets the type RollingUpdate without rollingUpdate, rollingUpdate stays nil. For a Deployment
	// or a DaemonSet it would be set.
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		if strategy.RollingUpdate == nil {
			strategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{}
		}
	}
	if strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && strategy.RollingUpdate != nil {
		declare.Pointer(&strategy.RollingUpdate.Partition, 0)
		if maxUnavailable {
			declare.Pointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		}
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
		// A template gets all defaults of a claim, even the phase of its status, which has no meaning in a
		// template.
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

// claimTemplates returns the claim templates of a spec without their types, which are not stored.
func claimTemplates(s *appsv1.StatefulSetSpec) []corev1.PersistentVolumeClaim {
	templates := slices.Clone(s.VolumeClaimTemplates)
	for i := range templates {
		templates[i].TypeMeta = metav1.TypeMeta{}
	}
	return templates
}
