package apps

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// deployment returns the kind of Deployments. It differs from the other workloads in two ways: changes of
// annotations increment the generation, and an update of the status cannot change labels.
func deployment(inPods core.PodGates, gates features.Gates) *registry.Kind {
	disabled := declare.DisabledOf(gates, declare.Part(features.DeploymentReplicaSetTerminatingReplicas,
		func(d *appsv1.Deployment) bool { return d.Status.TerminatingReplicas != nil },
		func(d *appsv1.Deployment) { d.Status.TerminatingReplicas = nil }))
	status := appsv1.DeploymentStatus{}.SwaggerDoc()
	columns := table.WithTemplate(appsv1.DeploymentSpec{}.SwaggerDoc()["selector"],
		table.Name,
		table.Column("Ready", "string", "Number of the pod with ready state"),
		table.Column("Up-to-date", "string", status["updatedReplicas"]),
		table.Column("Available", "string", status["availableReplicas"]),
		table.Age)
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "apps", Resource: "deployments", Name: "Deployment",
			ShortNames: []string{"deploy"}, Categories: []string{"all"}, Namespaced: true,
		},
		RunBy:    []string{registry.ControllerManager, registry.Scheduler},
		Versions: []registry.Version{declare.Version[appsv1.Deployment]("v1", defaultDeployment)},
		Storage:  registry.Storage{Version: "v1", Path: "deployments"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Subresources: []registry.Subresource{
			declare.Scale(func(d *appsv1.Deployment) (int32, int32, string) {
				return replicas(d.Spec.Replicas), d.Status.Replicas, table.Selector(d.Spec.Selector)
			}, func(d *appsv1.Deployment, n int32) { d.Spec.Replicas = &n }),
			declare.Status("spec", "metadata.labels"),
		},
		Strategy: registry.Strategy[*appsv1.Deployment]{
			Generation: true,
			// A change of annotations increments the generation, because some of them are
			// instructions to the controller.
			GenerationOf: func(d *appsv1.Deployment) any {
				return &deploymentContent{Spec: d.Spec, Annotations: d.Annotations}
			},
			PrepareStatusUpdate: func(d, old *appsv1.Deployment) {
				// The other workloads let an update of the status change labels. metadata.labels is also a reset
				// field of the subresource, so that managedFields do not list the client as the owner of labels.
				d.Labels = old.Labels
				disabled.Drop(d, old)
			},
			ValidateCreate: func(d *appsv1.Deployment) field.ErrorList { return validateDeployment(d, nil, &inPods) },
			PrepareCreate:  func(d *appsv1.Deployment) { inPods.DropNew(&d.Spec.Template) },
			PrepareUpdate: func(d, old *appsv1.Deployment) {
				inPods.Drop(&d.Spec.Template, &old.Spec.Template)
			},
			ValidateStatusUpdate: validateDeploymentStatus,
			ValidateUpdate: func(d, old *appsv1.Deployment) field.ErrorList {
				// The selector cannot change since apps/v1beta2: the controller would not find the ReplicaSets and
				// pods that only the old selector matches, and nobody would delete them.
				return append(validateDeployment(d, old, &inPods),
					declare.Immutable(d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))...)
			},
			Warn: func(d, old *appsv1.Deployment) []string {
				if old == nil {
					return append(declare.PodNameWarnings(d.Name), templateWarnings(&d.Spec.Template)...)
				}
				return changedTemplateWarnings(d, old, &d.Spec.Template)
			},
		}.Untyped(),
		Table: registry.Table[*appsv1.Deployment]{
			Columns: columns,
			Cells: func(d *appsv1.Deployment) []any {
				names, images := core.ContainerNames(&d.Spec.Template.Spec)
				return []any{
					d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, replicas(d.Spec.Replicas)),
					int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), table.AgeOf(d.CreationTimestamp),
					names, images, table.Selector(d.Spec.Selector),
				}
			},
		}.Untyped(),
	}
}

// deploymentContent has the fields whose changes increment the generation of a Deployment.
type deploymentContent struct {
	Spec        appsv1.DeploymentSpec
	Annotations map[string]string
}

// replicas returns 0 for nil, which only objects without defaults have.
func replicas(n *int32) int32 { return ptr.Deref(n, 0) }

// defaultDeployment sets the defaults of apps/v1. The controller rounds maxUnavailable down and maxSurge up: with
// one replica, 25% are 0 and 1, so the new pod is created before the old one is removed. revisionHistoryLimit is
// the number of old ReplicaSets that are kept. After progressDeadlineSeconds without progress (10 minutes), the
// condition Progressing is False.
func defaultDeployment(d *appsv1.Deployment) {
	declare.Pointer(&d.Spec.Replicas, 1)
	strategy := &d.Spec.Strategy
	declare.Value(&strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		if strategy.RollingUpdate == nil {
			strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{}
		}
		declare.Pointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		declare.Pointer(&strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	declare.Pointer(&d.Spec.RevisionHistoryLimit, 10)
	declare.Pointer(&d.Spec.ProgressDeadlineSeconds, 600)
	core.DefaultPodTemplate(&d.Spec.Template)
}

func templateWarnings(template *corev1.PodTemplateSpec) []string {
	path := field.NewPath("spec", "template")
	defer path.Free()
	return core.PodTemplateWarnings(path, template)
}

// changedTemplateWarnings returns the warnings about a template if the update has changed the
// spec.
// It compares generations, which are already those of the result. A change of the annotations of a Deployment
// counts as a change of the spec, because it increments the generation too.
func changedTemplateWarnings(obj, old metav1.Object, template *corev1.PodTemplateSpec) []string {
	if obj.GetGeneration() == old.GetGeneration() {
		return nil
	}
	return templateWarnings(template)
}
