package apps

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// daemonSet returns the kind of DaemonSets. It has two counters: metadata.generation counts changes of the spec,
// and the generation of the template counts changes of spec.template only. The controller copies the second one to
// a label of its pods.
func daemonSet(gates core.PodGates) *registry.Kind {
	spec, status := appsv1.DaemonSetSpec{}.SwaggerDoc(), appsv1.DaemonSetStatus{}.SwaggerDoc()
	columns := table.WithTemplate(spec["selector"],
		table.Name,
		table.Column("Desired", "integer", status["desiredNumberScheduled"]),
		table.Column("Current", "integer", status["currentNumberScheduled"]),
		table.Column("Ready", "integer", status["numberReady"]),
		table.Column("Up-to-date", "integer", status["updatedNumberScheduled"]),
		table.Column("Available", "integer", status["numberAvailable"]),
		table.Column("Node Selector", "string",
			"NodeSelector is a selector which must be true for the pod to fit on a node. Selector which must match a "+
				"node's labels for the pod to be scheduled on that node. More info: "+
				"https://kubernetes.io/docs/concepts/configuration/assign-pod-node/"),
		table.Age)
	v1 := declare.Version[appsv1.DaemonSet]("v1", defaultDaemonSet)
	v1.Check = checkTemplateGeneration
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "apps", Resource: "daemonsets", Name: "DaemonSet", ShortNames: []string{"ds"},
			Categories: []string{"all"}, Namespaced: true,
		},
		RunBy:        []string{registry.ControllerManager, registry.Scheduler},
		Versions:     []registry.Version{v1},
		Storage:      registry.Storage{Version: "v1", Path: "daemonsets"},
		Requests:     registry.Requests{UnconditionalUpdate: true},
		Metadata:     registry.Metadata{HiddenAnnotation: appsv1.DeprecatedTemplateGeneration},
		Subresources: []registry.Subresource{declare.Status()},
		Strategy: registry.Strategy[*appsv1.DaemonSet]{
			Generation: true,
			PrepareCreate: func(d *appsv1.DaemonSet) {
				gates.DropNew(&d.Spec.Template)
				// A client may choose the first value, unless it is less than 1.
				setTemplateGeneration(d, max(templateGeneration(d), 1))
			},
			PrepareUpdate: func(d, old *appsv1.DaemonSet) {
				gates.Drop(&d.Spec.Template, &old.Spec.Template)
				// On update the value of the client is ignored.
				generation := templateGeneration(old)
				if !equality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
					generation++
				}
				setTemplateGeneration(d, generation)
			},
			ValidateCreate: func(d *appsv1.DaemonSet) field.ErrorList { return validateDaemonSet(d, nil, &gates) },
			PrepareStatusUpdate: func(d, old *appsv1.DaemonSet) {
				// The annotation stands for a field of the spec of kube-apiserver's internal version, and an
				// update of the status cannot change the spec.
				setTemplateGeneration(d, templateGeneration(old))
			},
			ValidateStatusUpdate: validateDaemonSetStatus,
			ValidateUpdate: func(d, old *appsv1.DaemonSet) field.ErrorList {
				return append(validateDaemonSet(d, old, &gates),
					declare.Immutable(d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))...)
			},
			Warn: func(d, old *appsv1.DaemonSet) []string {
				if old != nil && templateGeneration(d) == templateGeneration(old) {
					return nil // the template has not changed
				}
				return templateWarnings(&d.Spec.Template)
			},
		}.Untyped(),
		Table: registry.Table[*appsv1.DaemonSet]{
			Columns: columns,
			Cells: func(d *appsv1.DaemonSet) []any {
				names, images := core.ContainerNames(&d.Spec.Template.Spec)
				s := d.Status
				return []any{
					d.Name, int64(s.DesiredNumberScheduled), int64(s.CurrentNumberScheduled), int64(s.NumberReady),
					int64(s.UpdatedNumberScheduled), int64(s.NumberAvailable),
					table.Labels(d.Spec.Template.Spec.NodeSelector), table.AgeOf(d.CreationTimestamp),
					names, images, metav1.FormatLabelSelector(d.Spec.Selector),
				}
			},
		}.Untyped(),
	}
}

// templateGeneration returns the generation of the template. It was a field in older versions
// of the API; in apps/v1 it is an annotation.
// It returns 0 for a text that is not a number; checkTemplateGeneration refuses such a text.
func templateGeneration(d *appsv1.DaemonSet) int64 {
	n, _ := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	return n
}

// checkTemplateGeneration returns an error unless the annotation is a number. kube-apiserver
// cannot decode a DaemonSet with another value.
// The response to such a request is 400 and not 422.
func checkTemplateGeneration(obj registry.Object) error {
	if text, there := obj.GetAnnotations()[appsv1.DeprecatedTemplateGeneration]; there {
		_, err := strconv.ParseInt(text, 10, 64)
		return err
	}
	return nil
}

func setTemplateGeneration(d *appsv1.DaemonSet, n int64) {
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
}

// defaultDaemonSet sets the defaults of apps/v1. maxUnavailable 1 and maxSurge 0 update one node at a time, and
// remove its old pod before the new one is created. revisionHistoryLimit is the number of old ControllerRevisions
// that are kept.
func defaultDaemonSet(d *appsv1.DaemonSet) {
	if _, there := d.Annotations[appsv1.DeprecatedTemplateGeneration]; !there {
		// The annotation is set as a default, so that managedFields name the client as its owner.
		setTemplateGeneration(d, 0)
	}
	strategy := &d.Spec.UpdateStrategy
	declare.Value(&strategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if strategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		if strategy.RollingUpdate == nil {
			strategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{}
		}
		declare.Pointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		declare.Pointer(&strategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	// A rollingUpdate with another strategy gets its defaults, too; validation refuses it later.
	if u := strategy.RollingUpdate; u != nil {
		declare.Pointer(&u.MaxUnavailable, intstr.FromInt32(0))
		declare.Pointer(&u.MaxSurge, intstr.FromInt32(0))
	}
	declare.Pointer(&d.Spec.RevisionHistoryLimit, 10)
	core.DefaultPodTemplate(&d.Spec.Template)
}
