package core

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/names"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func replicationControllers(gates PodGates) *registry.Kind {
	spec, status := corev1.ReplicationControllerSpec{}.SwaggerDoc(), corev1.ReplicationControllerStatus{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "replicationcontrollers", Name: "ReplicationController",
			ShortNames: []string{"rc"}, Categories: []string{"all"}, Namespaced: true,
		},
		RunBy:    []string{registry.ControllerManager, registry.Scheduler},
		Versions: onlyV1[corev1.ReplicationController](defaultReplicationController),
		// controllers is the old name of the resource, which kube-apiserver still uses in etcd.
		Storage:  registry.Storage{Version: "v1", Path: "controllers"},
		Requests: registry.Requests{UnconditionalUpdate: true, DefaultOrphan: true},
		Metadata: registry.Metadata{ValidateName: validateReplicationControllerName},
		Subresources: []registry.Subresource{
			declare.Scale(replicationControllerScale, func(c *corev1.ReplicationController, n int32) { c.Spec.Replicas = &n }),
			declare.Status(),
		},
		Selection: registry.Selection{
			Fields:     []registry.Field{{Name: "status.replicas", Path: []int32{3, 1}, Type: registry.Int}},
			FieldError: declare.FieldLabel,
		},
		Strategy: registry.Strategy[*corev1.ReplicationController]{
			Generation: true,
			PrepareCreate: func(c *corev1.ReplicationController) {
				if t := c.Spec.Template; t != nil {
					gates.DropNew(t)
				}
			},
			PrepareUpdate: func(c, old *corev1.ReplicationController) {
				if t, before := c.Spec.Template, old.Spec.Template; t != nil && before != nil {
					gates.Drop(t, before)
				}
			},
			ValidateCreate: func(c *corev1.ReplicationController) field.ErrorList {
				return gates.validateReplicationController(c, nil)
			},
			ValidateUpdate: func(c, old *corev1.ReplicationController) field.ErrorList {
				return gates.validateReplicationController(c, old)
			},
			ValidateStatusUpdate: func(c, _ *corev1.ReplicationController) field.ErrorList {
				return validateReplicationControllerStatus(&c.Status, field.NewPath("status"))
			},
			PrepareStatusUpdate: func(c, _ *corev1.ReplicationController) {
				defaultReplicationController(c) // labels that are missing are those of the template
			},
			Warn: warnReplicationController,
		}.Untyped(),
		Table: registry.Table[*corev1.ReplicationController]{
			Columns: table.WithTemplate(spec["selector"],
				table.Name,
				table.Column("Desired", "integer", spec["replicas"]),
				table.Column("Current", "integer", status["replicas"]),
				table.Column("Ready", "integer", status["readyReplicas"]),
				table.Age),
			Cells: replicationControllerCells,
		}.Untyped(),
	}
}

// defaultReplicationController takes a missing selector, and missing labels, from the labels of the template.
// The kinds of the group apps do not: they require a selector.
func defaultReplicationController(c *corev1.ReplicationController) {
	if t := c.Spec.Template; t != nil {
		DefaultPodTemplate(t)
		if len(c.Spec.Selector) == 0 && t.Labels != nil {
			c.Spec.Selector = maps.Clone(t.Labels)
		}
		if len(c.Labels) == 0 && t.Labels != nil {
			c.Labels = maps.Clone(t.Labels)
		}
	}
	declare.Pointer(&c.Spec.Replicas, 1)
}

func replicationControllerScale(c *corev1.ReplicationController) (spec, status int32, selector string) {
	return ptr.Deref(c.Spec.Replicas, 0), c.Status.Replicas, labels.Set(c.Spec.Selector).String()
}

// warnReplicationController returns warnings if the spec has changed. An update that changes only metadata
// repeats none.
func warnReplicationController(c, old *corev1.ReplicationController) []string {
	if c.Spec.Template == nil || old != nil && old.Generation == c.Generation {
		return nil
	}
	path := field.NewPath("spec", "template")
	if old != nil {
		return PodTemplateWarnings(path, old.Spec.Template) // kube-apiserver warns about the template before the update
	}
	return append(declare.PodNameWarnings(c.Name), PodTemplateWarnings(path, c.Spec.Template)...)
}

func replicationControllerCells(c *corev1.ReplicationController) []any {
	desired, current, _ := replicationControllerScale(c)
	var names, images string
	if c.Spec.Template != nil {
		names, images = ContainerNames(&c.Spec.Template.Spec)
	}
	return []any{
		c.Name, int64(desired), int64(current), int64(c.Status.ReadyReplicas), table.AgeOf(c.CreationTimestamp),
		names, images, table.Labels(c.Spec.Selector),
	}
}

// validateReplicationControllerName validates names, but not generateName, as kube-apiserver does for this kind.
func validateReplicationControllerName(name string, prefix bool) []string {
	if prefix {
		return nil
	}
	messages := slices.Clone(names.IsDNS1123Subdomain(name))
	for i := range messages {
		messages[i] = strings.Replace(messages[i], "no more than 253 characters", "no more than 253 bytes", 1)
	}
	return messages
}
