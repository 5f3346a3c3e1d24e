package core

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// mountableSecretsAnnotation restricts the pods of a service account to the secrets that it lists.
const mountableSecretsAnnotation = "kubernetes.io/enforce-mountable-secrets"

// defaultTokenSeconds is the lifetime of a token for which the client requests none, in
// seconds.
const defaultTokenSeconds = 60 * 60

func serviceAccounts() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "serviceaccounts", Name: "ServiceAccount", ShortNames: []string{"sa"},
			Namespaced: true,
		},
		Versions: onlyV1[corev1.ServiceAccount](nil),
		Storage:  registry.Storage{Version: "v1", Path: "serviceaccounts"},
		Requests: registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Subresources: []registry.Subresource{{
			Name: "token", Verbs: []string{"create"},
			GVK: authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
			New: func() registry.Object { return &authenticationv1.TokenRequest{} },
			Default: func(o registry.Object) {
				declare.Pointer(&o.(*authenticationv1.TokenRequest).Spec.ExpirationSeconds, defaultTokenSeconds)
			},
		}},
		Strategy: registry.Strategy[*corev1.ServiceAccount]{
			PrepareCreate: dropSecretReferenceFields,
			PrepareUpdate: func(s, _ *corev1.ServiceAccount) { dropSecretReferenceFields(s) },
			Warn: func(s, old *corev1.ServiceAccount) []string {
				if _, ok := s.Annotations[mountableSecretsAnnotation]; !ok {
					return nil
				}
				if old != nil {
					if _, ok := old.Annotations[mountableSecretsAnnotation]; ok {
						return nil
					}
				}
				return []string{"metadata.annotations[" + mountableSecretsAnnotation +
					"]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
			},
		}.Untyped(),
		Table: table.NameAndAge(),
	}
}

// dropSecretReferenceFields removes all fields of references to secrets except the name.
// The secrets are in the namespace of the service account, and only their names are used.
func dropSecretReferenceFields(s *corev1.ServiceAccount) {
	for i := range s.Secrets {
		s.Secrets[i] = corev1.ObjectReference{Name: s.Secrets[i].Name}
	}
}
