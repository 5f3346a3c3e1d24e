package core

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// validateConfigMap validates data and binaryData together: a key names a file in a volume, so it may be in
// only one of the two. The limit of the size is for the sum of both.
func validateConfigMap(m *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for _, key := range sortedKeys(m.Data) {
		errs = append(errs, field.Messages(field.NewPath("data").Key(key), key, validation.IsConfigMapKey(key))...)
		if _, twice := m.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, "duplicate of key present in binaryData"))
		}
		size += len(m.Data[key])
	}
	for _, key := range sortedKeys(m.BinaryData) {
		errs = append(errs, field.Messages(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(m.BinaryData[key])
	}
	return append(errs, notTooLarge(size, field.NewPath(""))...)
}

// notTooLarge limits the sum of the lengths of the values.
// The limit is 1 MiB (corev1.MaxSecretSize), for ConfigMaps and for Secrets. Keys do not count.
func notTooLarge(size int, path *field.Path) field.ErrorList {
	if size > corev1.MaxSecretSize {
		return field.ErrorList{field.TooLong(path, "" /* not shown */, corev1.MaxSecretSize)}
	}
	return nil
}

func sortedKeys[M ~map[K]V, K ~string, V any](m M) []K {
	keys := make([]K, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// validateSecret validates the keys and, for the types that Kubernetes defines, that the data of the type is
// there. Secrets of other types may have any keys. Errors have a placeholder in place of a value, because the
// data is secret.
func validateSecret(s *corev1.Secret) field.ErrorList {
	data := field.NewPath("data")
	var errs field.ErrorList
	size := 0
	for _, key := range sortedKeys(s.Data) {
		errs = append(errs, field.Messages(data.Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(s.Data[key])
	}
	errs = append(errs, notTooLarge(size, data)...)
	// need accepts an empty value: only the key must exist.
	need := func(keys ...string) {
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				errs = append(errs, field.Required(data.Key(key), ""))
			}
		}
	}
	isJSON := func(key string) {
		need(key)
		if text, ok := s.Data[key]; ok {
			if err := json.Unmarshal(text, &map[string]any{}); err != nil {
				errs = append(errs, field.Invalid(data.Key(key), "<secret contents redacted>", err.Error()))
			}
		}
	}
	switch s.Type {
	// The token controller of kube-controller-manager fills in the data later, so no key is required.
	case corev1.SecretTypeServiceAccountToken:
		errs = append(errs, field.NotEmpty(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey),
			s.Annotations[corev1.ServiceAccountNameKey])...)
	// A dockercfg is the content of the old file ~/.dockercfg, a dockerconfigjson that of
	// ~/.docker/config.json.
	case corev1.SecretTypeDockercfg:
		isJSON(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		isJSON(corev1.DockerConfigJsonKey)
	// One of user name and password is enough. If both are missing, there is an error for each.
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			need(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		errs = append(errs, field.RequiredIf(len(s.Data[corev1.SSHAuthPrivateKey]) == 0, data.Key(corev1.SSHAuthPrivateKey),
			"")...)
	// The certificate and the key are not parsed here. A pair that does not match gives a warning: see
	// warnSecret.
	case corev1.SecretTypeTLS:
		need(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return errs
}
