package apiextensions

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// previousDefinition is the definition before an update; the embedded pointer is nil on
// create. An update may keep errors that the previous definition has, because it may be older
// than the rules.
type previousDefinition struct{ *definition }

// established reports whether the definition is established, so that objects may exist.
func (d previousDefinition) established() bool {
	return d.definition != nil &&
		slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		})
}

// has reports whether any schema of the previous definition, at any depth, has the flaw.
func (d previousDefinition) has(flaw func(*props) bool) bool {
	return d.definition != nil && anySchemaMatches(&d.Spec, flaw)
}

// lacksSchemas reports whether a version has no schema.
func (d previousDefinition) lacksSchemas() bool {
	return d.definition != nil &&
		(len(d.Spec.Versions) == 0 ||
			slices.ContainsFunc(d.Spec.Versions, func(v version) bool { return schemaOf(&v) == nil }))
}

// unstructured reports whether a schema is not structural.
func (d previousDefinition) unstructured() bool {
	return d.definition != nil && slices.ContainsFunc(d.Spec.Versions, func(v version) bool {
		s := schemaOf(&v)
		return s != nil && (unsupported(s) != "" || len(validateStructural(s, field.NewPath("schema"))) > 0)
	})
}

// schemas returns its structural schemas.
func (d previousDefinition) schemas() []*structuralschema.Schema {
	if d.definition == nil {
		return nil
	}
	var out []*structuralschema.Schema
	for i := range d.Spec.Versions {
		// The rules of a schema that is not structural were never compiled.
		if s := schemaOf(&d.Spec.Versions[i]); s != nil {
			if s, err := resourceSchema(s); err == nil {
				out = append(out, s)
			}
		}
	}
	return out
}

// lacksReviewVersion reports whether its webhook accepts no known version of ConversionReview.
func (d previousDefinition) lacksReviewVersion() bool {
	w := d.webhook()
	return w != nil && len(w.ConversionReviewVersions) > 0 && !declare.HasReviewVersion(w.ConversionReviewVersions)
}

// allowsAnyBundle reports whether the CA bundle of the webhook need not be valid: it was not
// valid before, or the webhook is not called yet.
func (d previousDefinition) allowsAnyBundle() bool {
	if !d.established() {
		return true
	}
	w := d.webhook()
	return w != nil && w.ClientConfig != nil && len(w.ClientConfig.CABundle) > 0 &&
		checkCABundle(w.ClientConfig.CABundle) != nil
}

// webhook returns the conversion webhook, nil on create and for the strategy None.
func (d previousDefinition) webhook() *apiextensionsv1.WebhookConversion {
	if d.definition == nil || d.Spec.Conversion == nil {
		return nil
	}
	return d.Spec.Conversion.Webhook
}

// hasSelectable reports whether it has these selectable fields in a version, or for all
// versions if name is "".
func (d previousDefinition) hasSelectable(name string, fields []apiextensionsv1.SelectableField) bool {
	if d.definition == nil {
		return false
	}
	top := hoistCommon(&d.Spec)
	was := top.selectable
	if name != "" {
		i := slices.IndexFunc(top.versions, func(v version) bool { return v.Name == name })
		if i < 0 {
			return false
		}
		was = top.versions[i].SelectableFields
	}
	return equality.Semantic.DeepEqual(fields, was)
}

// hasSchema reports whether it has this schema for a version. A schema that all its versions
// share also counts for new versions.
// For a schema that has not changed, the cost limit of a single rule is not checked: the estimate may have become
// stricter since.
func (d previousDefinition) hasSchema(name string, schema *apiextensionsv1.CustomResourceValidation) bool {
	if d.definition == nil {
		return false
	}
	top := hoistCommon(&d.Spec)
	was := top.schema
	if slices.ContainsFunc(top.versions, func(v version) bool { return v.Schema != nil }) {
		i := slices.IndexFunc(top.versions, func(v version) bool { return v.Name == name })
		if i < 0 {
			return false
		}
		was = top.versions[i].Schema
	}
	return equality.Semantic.DeepEqual(schema, was)
}

func hasDefault(s *props) bool { return s.Default != nil }

func hasExtension(s *props) bool {
	return s.XEmbeddedResource || s.XPreserveUnknownFields != nil || s.XIntOrString ||
		len(s.XListMapKeys) > 0 || s.XListType != nil || len(s.XValidations) > 0
}

func hasUnknownType(s *props) bool { return s.Type != "" && !slices.Contains(types, s.Type) }

func hasNonAtomicSet(s *props) bool { return nonAtomicSetError(s, nil) != nil }

func hasInvalidListItems(s *props) bool { return len(validateListItems(s, nil)) > 0 }
