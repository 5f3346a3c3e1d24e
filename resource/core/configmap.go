package core

import (
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/registry"
)

const immutableOnceSet = "field is immutable when `immutable` is set"

func configMaps() *registry.Kind {
	return &registry.Kind{
		Package: "core", Resource: "configmaps", Singular: "configmap", Name: "ConfigMap",
		MetaOnUpdate: registry.MetaWhole,
		ShortNames:   []string{"cm"}, Namespaced: true,
		Versions: onlyV1(func() *corev1.ConfigMap { return &corev1.ConfigMap{} }, nil),
		Storage:  "v1", StoragePath: "configmaps",
		UnconditionalUpdate: true,
		Columns: []metav1.TableColumnDefinition{
			NameColumn,
			column("Data", "string", corev1.ConfigMap{}.SwaggerDoc()["data"]),
			AgeColumn,
		},
		Hooks: registry.HooksOf(registry.TypedHooks[*corev1.ConfigMap]{
			Validate:       func(_ context.Context, m *corev1.ConfigMap) field.ErrorList { return validateConfigMap(m) },
			ValidateUpdate: validateConfigMapUpdate,
			Cells: func(m *corev1.ConfigMap) ([]any, []metav1.TableRowCondition) {
				return []any{m.Name, int64(len(m.Data) + len(m.BinaryData)), Age(m.CreationTimestamp)}, nil
			},
		}),
	}
}

func validateConfigMapUpdate(_ context.Context, m, old *corev1.ConfigMap) field.ErrorList {
	errs := validateConfigMap(m)
	if old.Immutable == nil || !*old.Immutable {
		return errs
	}
	if m.Immutable == nil || !*m.Immutable {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), immutableOnceSet))
	}
	if !reflect.DeepEqual(m.Data, old.Data) {
		errs = append(errs, field.Forbidden(field.NewPath("data"), immutableOnceSet))
	}
	if !reflect.DeepEqual(m.BinaryData, old.BinaryData) {
		errs = append(errs, field.Forbidden(field.NewPath("binaryData"), immutableOnceSet))
	}
	return errs
}
