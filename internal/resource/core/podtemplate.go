package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func podTemplates(gates PodGates) *registry.Kind {
	return &registry.Kind{
		Names:    registry.Names{Package: "core", Resource: "podtemplates", Name: "PodTemplate", Namespaced: true},
		Versions: onlyV1(func(t *corev1.PodTemplate) { DefaultPodTemplate(&t.Template) }),
		Storage:  registry.Storage{Version: "v1", Path: "podtemplates"},
		Requests: registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Strategy: registry.Strategy[*corev1.PodTemplate]{
			Generation:    true,
			GenerationOf:  func(t *corev1.PodTemplate) any { return &t.Template },
			PrepareCreate: func(t *corev1.PodTemplate) { gates.DropNew(&t.Template) },
			PrepareUpdate: func(t, old *corev1.PodTemplate) {
				gates.Drop(&t.Template, &old.Template)
			},
			ValidateCreate: func(t *corev1.PodTemplate) field.ErrorList {
				return gates.ValidateTemplate(&t.Template, nil, field.NewPath("template"))
			},
			ValidateUpdate: func(t, old *corev1.PodTemplate) field.ErrorList {
				return gates.ValidateTemplate(&t.Template, &old.Template, field.NewPath("template"))
			},
			Warn: func(t, _ *corev1.PodTemplate) []string {
				return PodTemplateWarnings(field.NewPath("template"), &t.Template)
			},
		}.Untyped(),
		Table: registry.Table[*corev1.PodTemplate]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Containers", "string", "Names of each container in the template."),
				table.Column("Images", "string", "Images referenced by each container in the template."),
				table.Column("Pod Labels", "string", "The labels for the pod template."),
			},
			Cells: func(t *corev1.PodTemplate) []any {
				names, images := ContainerNames(&t.Template.Spec)
				return []any{t.Name, names, images, table.Labels(t.Template.Labels)}
			},
		}.Untyped(),
	}
}
