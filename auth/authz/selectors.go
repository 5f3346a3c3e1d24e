package authz

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/keelson-dev/keelson/request"
)

// Selectors are the requirements of field and label selectors, all of which an
// object has to meet. Each is parsed when an authorizer first asks for it: most do not,
// and a selector may be long. A Selectors may be used concurrently; nil has no
// requirements.
type Selectors struct {
	fields parsed[fields.Requirements]
	labels parsed[labels.Requirements]
}

// parsed is a selector, parsed once.
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

// ParseSelectors returns the selectors of a query; nil for none.
func ParseSelectors(rawQuery string) *Selectors {
	if !strings.Contains(rawQuery, "Selector") && !strings.Contains(rawQuery, "%") { // a name may be percent-encoded
		return nil
	}
	// Errors leave out what they are about.
	query, _ := url.ParseQuery(rawQuery)
	return NewSelectors(query.Get("fieldSelector"), query.Get("labelSelector"))
}

// NewSelectors returns selectors in their written form; nil for none.
func NewSelectors(field, label string) *Selectors {
	if field == "" && label == "" {
		return nil
	}
	s := &Selectors{}
	if field != "" {
		s.fields.parse = func() (fields.Requirements, error) {
			selector, err := request.ServedSelector().Fields(field)
			if err != nil {
				return nil, err
			}
			return selector.Requirements(), nil
		}
	}
	if label != "" {
		s.labels.parse = func() (labels.Requirements, error) {
			selector, err := request.ServedSelector().Labels(label)
			if err != nil {
				return nil, err
			}
			requirements, _ := selector.Requirements()
			return requirements, nil
		}
	}
	return s
}

// RequireFields replaces the requirements of fields by those of a review. It is called
// before anybody asks for them.
func (s *Selectors) RequireFields(in []metav1.FieldSelectorRequirement) {
	s.fields.parse = func() (fields.Requirements, error) { return fieldRequirements(in) }
}

// RequireLabels replaces the requirements of labels, as RequireFields does.
func (s *Selectors) RequireLabels(in []metav1.LabelSelectorRequirement) {
	s.labels.parse = func() (labels.Requirements, error) { return labelRequirements(in) }
}

// Fields returns the requirements of fields. Beside an error, which says that not all
// could be understood, are those that could: to leave out others makes the question
// broader, so an answer to it is safe.
func (s *Selectors) Fields() (fields.Requirements, error) {
	if s == nil {
		return nil, nil
	}
	return s.fields.get()
}

// Labels returns the requirements of labels, as Fields does.
func (s *Selectors) Labels() (labels.Requirements, error) {
	if s == nil {
		return nil, nil
	}
	return s.labels.get()
}

// FieldEquals says whether the selectors require that field to be value.
func (s *Selectors) FieldEquals(field, value string) bool {
	requirements, _ := s.Fields() // those that are understood count
	for _, r := range requirements {
		if r.Field == field && r.Operator == selection.Equals && r.Value == value {
			return true
		}
	}
	return false
}

// fieldRequirements converts those of a review. Requirements that are not
// understood are left out and named by the error.
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

// labelRequirements converts those of a review, as fieldRequirements does.
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
	return out, aggregate(failed)
}
