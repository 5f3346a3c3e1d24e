package core

import (
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// immutableOnceSet is the message about ConfigMaps and Secrets with immutable: true (KEP-1412). Kubelets do not
// watch such objects, so a change would not reach the pods that use them. For the same reason the field itself
// cannot be reset: the way to change the object is to delete it and to create it again.
const immutableOnceSet = "field is immutable when `immutable` is set"

func configMaps() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "configmaps", Name: "ConfigMap", ShortNames: []string{"cm"}, Namespaced: true,
		},
		Versions: onlyV1[corev1.ConfigMap](nil),
		Storage:  registry.Storage{Version: "v1", Path: "configmaps"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*corev1.ConfigMap]{
			Validate:       validateConfigMap,
			ValidateUpdate: validateConfigMapUpdate,
		}.Untyped(),
		Table: registry.Table[*corev1.ConfigMap]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Data", "string", corev1.ConfigMap{}.SwaggerDoc()["data"]),
				table.Age,
			},
			Cells: func(m *corev1.ConfigMap) []any {
				return []any{m.Name, int64(len(m.Data) + len(m.BinaryData)), table.AgeOf(m.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// validateConfigMapUpdate checks what an immutable ConfigMap forbids. Labels and annotations of an immutable
// ConfigMap may still change.
func validateConfigMapUpdate(m, old *corev1.ConfigMap) field.ErrorList {
	if old.Immutable == nil || !*old.Immutable {
		return nil
	}
	errs := field.ForbiddenIf(m.Immutable == nil || !*m.Immutable, field.NewPath("immutable"), immutableOnceSet)
	errs = append(errs, field.ForbiddenIf(!maps.Equal(m.Data, old.Data), field.NewPath("data"), immutableOnceSet)...)
	return append(errs, field.ForbiddenIf(!reflect.DeepEqual(m.BinaryData, old.BinaryData), field.NewPath("binaryData"),
		immutableOnceSet)...)
}
