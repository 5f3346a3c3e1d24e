package request

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Only this file parses the text of selectors, so that every selector has limits. A test in internal/lint checks
// that no other file calls the parsers of apimachinery. Parsing takes about three microseconds a term, and each
// object of a list is compared with each term.

// selectorLimits bound the selectors that are parsed.
type selectorLimits struct {
	// bytes limits the length of the text, terms the number of parts between commas: requirements, and values of a set.
	bytes, terms int
}

// servedSelector has the limits of selectors that are served. kube-apiserver limits only the headers of a request,
// in which 450,000 terms have room.
func servedSelector() selectorLimits { return selectorLimits{bytes: 256 << 10, terms: 10_000} }

// beforeAuthorization has the limits of selectors that are parsed although their
// sender may have no permission.
func beforeAuthorization() selectorLimits { return selectorLimits{bytes: 16 << 10, terms: 1000} }

// ErrSelectorMemory means that the selectors of a user's requests take so much memory that no more are parsed. The request is answered 429.
var ErrSelectorMemory = errors.New("the selectors of the requests of this user take too much memory")

// ServedLabels parses the label selector of a request that is served. It fails if the text is not a selector, if
// it exceeds the limits, or with ErrSelectorMemory. The memory of a long selector is counted for the user, before
// the selector is parsed and until the request ends.
func ServedLabels(ctx context.Context, text string) (labels.Selector, error) {
	return parseServed(ctx, text, selectorLimits.labels)
}

// ServedFields parses the field selector of a request that is served, as ServedLabels does.
func ServedFields(ctx context.Context, text string) (fields.Selector, error) {
	return parseServed(ctx, text, selectorLimits.fields)
}

// LabelsToAuthorize parses the label selector of a request that is to be authorized.
func LabelsToAuthorize(text string) (labels.Selector, error) { return servedSelector().labels(text) }

// FieldsToAuthorize parses the field selector of a request that is to be authorized.
func FieldsToAuthorize(text string) (fields.Selector, error) { return servedSelector().fields(text) }

// FieldsBeforeAuthorization parses the field selector of a request whose sender may have no permission.
func FieldsBeforeAuthorization(text string) (fields.Selector, error) {
	return beforeAuthorization().fields(text)
}

// LabelsOfAnnotation parses labels in the form of a selector (k=v,k2=v2), which an object has in an annotation.
func LabelsOfAnnotation(text string) (labels.Set, error) {
	if err := servedSelector().check(text); err != nil {
		return nil, err
	}
	return labels.ConvertSelectorToLabelsMap(text)
}

func (l selectorLimits) labels(text string) (labels.Selector, error) {
	if err := l.check(text); err != nil {
		return nil, err
	}
	return labels.Parse(text)
}

func (l selectorLimits) fields(text string) (fields.Selector, error) {
	if err := l.check(text); err != nil {
		return nil, err
	}
	return fields.ParseSelector(text)
}

func (l selectorLimits) check(text string) error {
	if len(text) > l.bytes {
		return fmt.Errorf("the selector has %d bytes, more than %d", len(text), l.bytes)
	}
	if terms := terms(text); terms > l.terms {
		return fmt.Errorf("the selector has %d terms, more than %d", terms, l.terms)
	}
	return nil
}

func terms(text string) int { return strings.Count(text, ",") + 1 }

// termMemory is about how many bytes a parsed term takes in addition to its text.
const termMemory = 100

// parseServed parses a selector, and counts its memory for the user until the request ends.
func parseServed[S any](ctx context.Context, text string, parse func(selectorLimits, string) (S, error)) (parsed S, err error) {
	limits := servedSelector()
	if err := limits.check(text); err != nil {
		return parsed, err
	}
	// The text is kept twice: in the URL of the request, and in the terms.
	if n := 2*len(text) + termMemory*terms(text); n > FreeMemory && !ResponseFrom(ctx).Keep(int64(n)) {
		return parsed, ErrSelectorMemory
	}
	return parse(limits, text)
}
