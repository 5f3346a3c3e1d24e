package request

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// SelectorLimits bound the selectors that are parsed: parsing takes about three
// microseconds a term, and each object of a list is compared with each term.
type SelectorLimits struct {
	// Bytes limits the length of the text, Terms the number of parts between commas: requirements, and values of a set.
	Bytes, Terms int
}

// ServedSelector returns the limits of selectors that are served. kube-apiserver limits only the headers of a request,
// in which 450,000 terms have room.
func ServedSelector() SelectorLimits { return SelectorLimits{Bytes: 256 << 10, Terms: 10_000} }

// beforeAuthorization are the limits of selectors that are parsed although their
// sender may have no permission.
func beforeAuthorization() SelectorLimits { return SelectorLimits{Bytes: 16 << 10, Terms: 1000} }

// Labels parses a label selector; beyond the limits is an error.
func (l SelectorLimits) Labels(text string) (labels.Selector, error) {
	if err := l.check(text); err != nil {
		return nil, err
	}
	return labels.Parse(text)
}

// Fields parses a field selector; beyond the limits is an error.
func (l SelectorLimits) Fields(text string) (fields.Selector, error) {
	if err := l.check(text); err != nil {
		return nil, err
	}
	return fields.ParseSelector(text)
}

func (l SelectorLimits) check(text string) error {
	if len(text) > l.Bytes {
		return fmt.Errorf("the selector has %d bytes, more than %d", len(text), l.Bytes)
	}
	if terms := strings.Count(text, ",") + 1; terms > l.Terms {
		return fmt.Errorf("the selector has %d terms, more than %d", terms, l.Terms)
	}
	return nil
}
