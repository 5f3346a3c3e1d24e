// Package pluginconfig decodes the configurations that admission plug-ins have of their own, in JSON or YAML.
package pluginconfig

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Decode decodes a configuration of the given kind. Another kind or version is an error, and so is a field that is
// unknown or there twice.
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
	document, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(document, into)
	if err != nil {
		return err
	}
	if err := utilerrors.NewAggregate(strict); err != nil {
		return fmt.Errorf("strict decoding error: %w", err)
	}
	return nil
}
