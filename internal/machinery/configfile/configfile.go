// Package configfile decodes configuration files that have a kind and a version, in YAML or JSON.
package configfile

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Kind is a kind of configuration file.
type Kind struct {
	Group, Name string
	// Versions are the accepted versions, which have the same fields. Errors name the first.
	Versions []string
}

// Decode decodes a file of the kind into a value. meta points to the TypeMeta in this value. Decode fails if the
// file has another kind or version, or if a field is unknown or appears twice.
func (k Kind) Decode(content []byte, into any, meta *metav1.TypeMeta) error {
	strict, err := Unmarshal(content, into)
	if err != nil {
		return err
	}
	if !k.Matches(meta) {
		return fmt.Errorf("expected %s of %s/%s, got apiVersion %q, kind %q", k.Name, k.Group, k.Versions[0], meta.APIVersion,
			meta.Kind)
	}
	return strict
}

// Matches reports whether a file is of the kind, in one of its versions.
func (k Kind) Matches(meta *metav1.TypeMeta) bool {
	group, version, _ := strings.Cut(meta.APIVersion, "/")
	return group == k.Group && meta.Kind == k.Name && slices.Contains(k.Versions, version)
}

// Unmarshal decodes a document of any kind. err is also the error for a field that appears twice. strict is the
// error for unknown fields; in this case the rest of the document has been decoded.
func Unmarshal(content []byte, into any) (strict, err error) {
	document, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, err
	}
	wrong, err := kjson.UnmarshalStrict(document, into)
	if err == nil && len(wrong) > 0 {
		strict = fmt.Errorf("strict decoding error: %w", utilerrors.NewAggregate(wrong))
	}
	return strict, err
}
