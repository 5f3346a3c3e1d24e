package core

import (
	"crypto/tls"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func secrets() *registry.Kind {
	return &registry.Kind{
		Names:    registry.Names{Package: "core", Resource: "secrets", Name: "Secret", Namespaced: true},
		Versions: onlyV1[corev1.Secret](defaultSecret),
		Storage:  registry.Storage{Version: "v1", Path: "secrets"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Selection: registry.Selection{
			Fields: []registry.Field{{Name: "type", Path: []int32{3}}}, FieldError: declare.FieldLabel,
		},
		Strategy: registry.Strategy[*corev1.Secret]{
			ValidateCreate: validateSecret,
			ValidateUpdate: validateSecretUpdate,
			Warn:           warnSecret,
		}.Untyped(),
		Table: registry.Table[*corev1.Secret]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Type", "string", corev1.Secret{}.SwaggerDoc()["type"]),
				table.Column("Data", "string", corev1.Secret{}.SwaggerDoc()["data"]),
				table.Age,
			},
			Cells: func(s *corev1.Secret) []any {
				return []any{s.Name, string(s.Type), int64(len(s.Data)), table.AgeOf(s.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// defaultSecret sets defaults, and moves the write-only stringData to data.
// A key in stringData replaces the same key in data. stringData exists so that a client need not encode text in
// base64. It is never stored or returned.
func defaultSecret(s *corev1.Secret) {
	declare.Value(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for k, v := range s.StringData {
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

// validateSecretUpdate validates an update. The type is immutable in all secrets, the data only in those with
// immutable: true.
func validateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := append(apivalidation.ValidateImmutableField(s.Type, old.Type, field.NewPath("type").K8s()), validateSecret(s)...)
	if old.Immutable == nil || !*old.Immutable {
		return errs
	}
	errs = append(errs, field.ForbiddenIf(s.Immutable == nil || !*s.Immutable, field.NewPath("immutable"),
		immutableOnceSet)...)
	return append(errs, field.ForbiddenIf(!reflect.DeepEqual(s.Data, old.Data), field.NewPath("data"),
		immutableOnceSet)...)
}

// warnSecret returns a warning if the certificate and the key of a TLS secret do not match.
// It is no error: kube-apiserver requires only that both keys exist, and accepts any content of them.
func warnSecret(s, _ *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}
