// Package pluginconfig decodes the configurations that admission plug-ins have of their own, in JSON or YAML.
package pluginconfig

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/machinery/configfile"
)

// Decode decodes a configuration of the given kind. It fails for another kind or version, and for unknown or
// duplicate fields.
func Decode(raw []byte, kind schema.GroupVersionKind, into any) error {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(raw, &meta); err != nil {
		return err
	}
	if found := meta.GroupVersionKind(); found != kind {
		return fmt.Errorf("no kind %q is registered for version %q; expected %q of %q", found.Kind, meta.APIVersion, kind.Kind,
			kind.GroupVersion())
	}
	return DecodeUnversioned(raw, into)
}

// DecodeUnversioned is like Decode for the older configurations that have no kind.
func DecodeUnversioned(raw []byte, into any) error {
	strict, err := configfile.Unmarshal(raw, into)
	if err != nil {
		return err
	}
	return strict
}
