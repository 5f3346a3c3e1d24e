package authz

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Selectors are the requirements of a field selector and a label selector. Each is parsed at its first use: most
// authorizers do not use them, and a selector may be long. Selectors may be used concurrently. A nil *Selectors has no
// requirements.
type Selectors struct {
	fields parsed[fields.Requirements]
	labels parsed[labels.Requirements]
}

// parsed is a selector that is parsed at most once.
type parsed[R any] struct {
	once         sync.Once
	parse        func() (R, error) // nil: there is no selector
	requirements R
	err          error
}

func (p *parsed[R]) get() (R, error) {
	p.once.Do(func() {
		if p.parse != nil {
			p.requirements, p.err = p.parse()
		}
	})
	return p.requirements, p.err
}

// ParseSelectors returns the selectors of a URL query, nil if there are none.
func ParseSelectors(rawQuery string) *Selectors {
	if !strings.Contains(rawQuery, "Selector") && !strings.Contains(rawQuery, "%") { // a name may be percent-encoded
		return nil
	}
	// ParseQuery leaves out the parameters that it cannot parse. They are ignored here.
	query, _ := url.ParseQuery(rawQuery)
	return NewSelectors(query.Get("fieldSelector"), query.Get("labelSelector"))
}

// NewSelectors returns selectors for their text, nil if both are empty.
func NewSelectors(field, label string) *Selectors {
	if field == "" && label == "" {
		return nil
	}
	s := &Selectors{}
	if field != "" {
		s.fields.parse = func() (fields.Requirements, error) {
			selector, err := request.FieldsToAuthorize(field)
			if err != nil {
				return nil, err
			}
			return selector.Requirements(), nil
		}
	}
	if label != "" {
		s.labels.parse = func() (labels.Requirements, error) {
			selector, err := request.LabelsToAuthorize(label)
			if err != nil {
				return nil, err
			}
			requirements, _ := selector.Requirements()
			return requirements, nil
		}
	}
	return s
}

// ParsedSelectors returns selectors that the caller has parsed, with the errors of parsing.
func ParsedSelectors(
	field func() (fields.Requirements, error), label func() (labels.Requirements, error),
) *Selectors {
	s := &Selectors{}
	s.fields.parse, s.labels.parse = field, label
	return s
}

// RequireFields replaces the field requirements by those of a review. It must be called before Fields.
func (s *Selectors) RequireFields(in []metav1.FieldSelectorRequirement) {
	s.fields.parse = func() (fields.Requirements, error) { return fieldRequirements(in) }
}

// RequireLabels replaces the label requirements by those of a review. It must be called before Labels.
func (s *Selectors) RequireLabels(in []metav1.LabelSelectorRequirement) {
	s.labels.parse = func() (labels.Requirements, error) { return labelRequirements(in) }
}

// Fields returns the requirements of the field selector. If some of them cannot be parsed, it
// returns an error and the others. An authorizer may then decide with fewer requirements: that
// is a broader request, so allowing it is safe.
func (s *Selectors) Fields() (fields.Requirements, error) {
	if s == nil {
		return nil, nil
	}
	return s.fields.get()
}

// Labels returns the requirements of the label selector, with the same rules as Fields.
func (s *Selectors) Labels() (labels.Requirements, error) {
	if s == nil {
		return nil, nil
	}
	return s.labels.get()
}

// FieldEquals reports whether the field selector requires that the field has the value.
func (s *Selectors) FieldEquals(field, value string) bool {
	requirements, _ := s.Fields() // the requirements that could be parsed are enough
	return slices.Contains(requirements, fields.Requirement{Field: field, Operator: selection.Equals, Value: value})
}

// fieldRequirements converts the requirements of a review. It omits requirements that it cannot convert, and returns an
// error for them.
func fieldRequirements(in []metav1.FieldSelectorRequirement) (fields.Requirements, error) {
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
	return out, utilerrors.NewAggregate(failed)
}

func fieldRequirement(r metav1.FieldSelectorRequirement) (fields.Requirement, error) {
	out := fields.Requirement{Field: r.Key}
	if len(r.Values) > 1 {
		return out, errors.New("fieldSelectors do not yet support multiple values")
	}
	operator := ""
	switch r.Operator {
	case metav1.FieldSelectorOpIn:
		out.Operator, operator = selection.Equals, "in"
	case metav1.FieldSelectorOpNotIn:
		out.Operator, operator = selection.NotEquals, "not in"
	case metav1.FieldSelectorOpExists, metav1.FieldSelectorOpDoesNotExist:
		return out, fmt.Errorf("fieldSelectors do not yet support %v", r.Operator)
	default:
		return out, fmt.Errorf("%q is not a valid field selector operator", r.Operator)
	}
	if len(r.Values) != 1 {
		return out, fmt.Errorf("fieldSelectors %s must have one value", operator)
	}
	out.Value = r.Values[0]
	return out, nil
}

// labelRequirements converts the requirements of a review, with the same rules as
// fieldRequirements.
func labelRequirements(in []metav1.LabelSelectorRequirement) (labels.Requirements, error) {
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
	return out, utilerrors.NewAggregate(failed)
}
