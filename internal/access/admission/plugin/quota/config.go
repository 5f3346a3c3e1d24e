package quota

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/access/admission/pluginconfig"
)

// Config is the configuration of the plug-in.
type Config struct {
	metav1.TypeMeta `json:",inline"`
	// LimitedResources are resources that cannot be used without a quota for them. The default is none.
	LimitedResources []LimitedResource `json:"limitedResources"`
}

// LimitedResource names a resource, and the usage and the scopes for which its objects need a quota.
type LimitedResource struct {
	// APIGroup and Resource are the resource.
	APIGroup string `json:"apiGroup,omitempty"`
	Resource string `json:"resource"`
	// MatchContains are parts of names such as "requests.storage". An object that uses a name with one of these
	// parts needs a quota that limits the name.
	MatchContains []string `json:"matchContains,omitempty"`
	// MatchScopes are scopes: an object in one of them needs a quota with that scope.
	MatchScopes []corev1.ScopedResourceSelectorRequirement `json:"matchScopes,omitempty"`
}

// DecodeConfig reads a ResourceQuotaConfiguration of apiserver.config.k8s.io/v1 in JSON or YAML; nil is the default.
func DecodeConfig(raw []byte) (Config, error) {
	var c Config
	if raw == nil {
		return c, nil
	}
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(raw, &meta); err != nil {
		return c, err
	}
	kind := schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1", Kind: "ResourceQuotaConfiguration"}
	// Two older versions have the same fields, but another group and kind.
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		older := schema.GroupVersionKind{
			Group: "resourcequota.admission.k8s.io", Version: version, Kind: "Configuration",
		}
		if meta.GroupVersionKind() == older {
			kind = older
		}
	}
	if err := pluginconfig.Decode(raw, kind, &c); err != nil {
		return c, err
	}
	var errs []error
	for i := range c.LimitedResources {
		if c.LimitedResources[i].Resource == "" {
			errs = append(errs, fmt.Errorf("limitedResources[%d].resource: Required value", i))
		}
	}
	return c, errors.Join(errs...)
}
