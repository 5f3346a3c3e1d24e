package core

import (
	"context"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

const immutableOnceSet = "field is immutable when `immutable` is set"

func configMaps() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "configmaps", Singular: "configmap", Name: "ConfigMap",
			ShortNames: []string{"cm"}, Namespaced: true,
		},
		Versions: onlyV1[corev1.ConfigMap](nil),
		Storage:  registry.Storage{Version: "v1", Path: "configmaps"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*corev1.ConfigMap]{
			Validate: func(_ context.Context, m *corev1.ConfigMap) field.ErrorList {
				return validateConfigMap(m)
			},
			ValidateUpdate: validateConfigMapUpdate,
		}.Untyped(),
		Table: registry.Table[*corev1.ConfigMap]{
			Columns: []metav1.TableColumnDefinition{
				NameColumn,
				column("Data", "string", corev1.ConfigMap{}.SwaggerDoc()["data"]),
				AgeColumn,
			},
			Cells: func(m *corev1.ConfigMap) ([]any, []metav1.TableRowCondition) {
				return []any{m.Name, int64(len(m.Data) + len(m.BinaryData)), Age(m.CreationTimestamp)}, nil
			},
		}.Untyped(),
	}
}

func validateConfigMapUpdate(_ context.Context, m, old *corev1.ConfigMap) field.ErrorList {
	errs := validateConfigMap(m)
	if old.Immutable == nil || !*old.Immutable {
		return errs
	}
	errs = append(errs, field.ForbiddenIf(m.Immutable == nil || !*m.Immutable, field.NewPath("immutable"),
		immutableOnceSet)...)
	errs = append(errs, field.ForbiddenIf(!maps.Equal(m.Data, old.Data), field.NewPath("data"), immutableOnceSet)...)
	return append(errs, field.ForbiddenIf(!reflect.DeepEqual(m.BinaryData, old.BinaryData), field.NewPath("binaryData"),
		immutableOnceSet)...)
}
