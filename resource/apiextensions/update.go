package apiextensions

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/structural"
)

// earlier is the definition before an update; its own is nil for a new one. An
// update may keep what is wrong with it since before there was a rule.
type earlier struct{ *definition }

// established says that objects may exist.
func (e earlier) established() bool {
	return e.definition != nil && slices.ContainsFunc(e.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// has says that a schema of the earlier definition, in any role, has a flaw.
func (e earlier) has(flaw func(*props) bool) bool {
	return e.definition != nil && anySchema(&e.Spec, flaw)
}

// lacksSchemas says that some version did without one.
func (e earlier) lacksSchemas() bool {
	return e.definition != nil &&
		(len(e.Spec.Versions) == 0 || slices.ContainsFunc(e.Spec.Versions, func(v version) bool { return schemaOf(&v) == nil }))
}

// unstructured says that some schema was not structural.
func (e earlier) unstructured() bool {
	return e.definition != nil && slices.ContainsFunc(e.Spec.Versions, func(v version) bool {
		s := schemaOf(&v)
		return s != nil && (unsupported(s) != "" || len(structuralProblems(s, field.NewPath("schema"))) > 0)
	})
}

// schemas are its structural schemas, as they are written.
func (e earlier) schemas() []*structural.Schema {
	if e.definition == nil {
		return nil
	}
	var out []*structural.Schema
	for i := range e.Spec.Versions {
		// What is not structural has no rules that were ever compiled.
		if s := schemaOf(&e.Spec.Versions[i]); s != nil {
			if s, err := resourceSchema(s); err == nil {
				out = append(out, s)
			}
		}
	}
	return out
}

// lacksReviewVersion says that no version that its webhook accepts is known.
func (e earlier) lacksReviewVersion() bool {
	w := e.webhook()
	return w != nil && len(w.ConversionReviewVersions) > 0 && !hasReviewVersion(w.ConversionReviewVersions)
}

// allowsAnyBundle says that the bundle of the webhook need not be one: it was none
// before, or the webhook is not called yet.
func (e earlier) allowsAnyBundle() bool {
	if !e.established() {
		return true
	}
	w := e.webhook()
	return w != nil && w.ClientConfig != nil && len(w.ClientConfig.CABundle) > 0 && checkCABundle(w.ClientConfig.CABundle) != nil
}

func (e earlier) webhook() *apiextensionsv1.WebhookConversion {
	if e.definition == nil || e.Spec.Conversion == nil {
		return nil
	}
	return e.Spec.Conversion.Webhook
}

// hasSelectable says that it has these selectable fields in a version, or in common
// if that is "".
func (e earlier) hasSelectable(name string, fields []apiextensionsv1.SelectableField) bool {
	if e.definition == nil {
		return false
	}
	top := hoist(&e.Spec)
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

// hasSchema says that it has this schema for a version. One schema for all of its
// versions it has for new versions too.
func (e earlier) hasSchema(name string, schema *apiextensionsv1.CustomResourceValidation) bool {
	if e.definition == nil {
		return false
	}
	top := hoist(&e.Spec)
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

func hasCompositeSet(s *props) bool { return compositeSet(s, nil) != nil }

func hasVagueItems(s *props) bool { return len(listItemProblems(s, nil)) > 0 }
