package authz

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Selectors are the requirements of field and label selectors, all of which an
// object has to meet. Where one could not be parsed the requirements that could
// are there beside the error: dropping others makes the question broader, so an
// answer to it is safe.
type Selectors struct {
	Fields      fields.Requirements
	FieldsError error
	Labels      labels.Requirements
	LabelsError error
}

// ParseSelectors reads the selectors of a query; nil for none.
func ParseSelectors(rawQuery string) *Selectors {
	if !strings.Contains(rawQuery, "Selector") && !strings.Contains(rawQuery, "%") { // a name may be percent-encoded
		return nil
	}
	// Errors leave out what they are about.
	query, _ := url.ParseQuery(rawQuery)
	return NewSelectors(query.Get("fieldSelector"), query.Get("labelSelector"))
}

// NewSelectors parses selectors in their written form; nil for none.
func NewSelectors(field, label string) *Selectors {
	if field == "" && label == "" {
		return nil
	}
	s := &Selectors{}
	if field != "" {
		selector, err := fields.ParseSelector(field)
		if s.FieldsError = err; err == nil {
			s.Fields = selector.Requirements()
		}
	}
	if label != "" {
		selector, err := labels.Parse(label)
		if s.LabelsError = err; err == nil {
			s.Labels, _ = selector.Requirements()
		}
	}
	return s
}

// FieldEquals says whether the selectors require that field to be value.
func (s *Selectors) FieldEquals(field, value string) bool {
	if s == nil {
		return false
	}
	for _, r := range s.Fields {
		if r.Field == field && r.Operator == selection.Equals && r.Value == value {
			return true
		}
	}
	return false
}

// FieldRequirements converts those of a review. Requirements that are not
// understood are left out and named by the error.
func FieldRequirements(in []metav1.FieldSelectorRequirement) (fields.Requirements, error) {
	var out fields.Requirements
	var failed []error
	for _, r := range in {
		converted, err := fieldRequirement(r)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		out = append(out, converted)
	}
	return out, aggregate(failed)
}

func fieldRequirement(r metav1.FieldSelectorRequirement) (fields.Requirement, error) {
	out := fields.Requirement{Field: r.Key}
	if len(r.Values) > 1 {
		return out, errors.New("fieldSelectors do not yet support multiple values")
	}
	word := ""
	switch r.Operator {
	case metav1.FieldSelectorOpIn:
		out.Operator, word = selection.Equals, "in"
	case metav1.FieldSelectorOpNotIn:
		out.Operator, word = selection.NotEquals, "not in"
	case metav1.FieldSelectorOpExists, metav1.FieldSelectorOpDoesNotExist:
		return out, fmt.Errorf("fieldSelectors do not yet support %v", r.Operator)
	default:
		return out, fmt.Errorf("%q is not a valid field selector operator", r.Operator)
	}
	if len(r.Values) != 1 {
		return out, fmt.Errorf("fieldSelectors %s must have one value", word)
	}
	out.Value = r.Values[0]
	return out, nil
}

// LabelRequirements converts those of a review, as FieldRequirements does.
func LabelRequirements(in []metav1.LabelSelectorRequirement) (labels.Requirements, error) {
	operators := map[metav1.LabelSelectorOperator]selection.Operator{
		metav1.LabelSelectorOpIn: selection.In, metav1.LabelSelectorOpNotIn: selection.NotIn,
		metav1.LabelSelectorOpExists: selection.Exists, metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	var out labels.Requirements
	var failed []error
	for _, r := range in {
		operator, ok := operators[r.Operator]
		if !ok {
			failed = append(failed, fmt.Errorf("%q is not a valid label selector operator", r.Operator))
			continue
		}
		converted, err := labels.NewRequirement(r.Key, operator, r.Values)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		out = append(out, *converted)
	}
	return out, aggregate(failed)
}
