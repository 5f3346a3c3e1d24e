// Package convert converts custom resources between the versions of their definition, either by changing apiVersion
// only (strategy None), or by calling the conversion webhook of the definition (ConversionReview of
// apiextensions.k8s.io).
//
// Converters share only the connections to the same webhook, so a broken or hanging webhook affects only the
// definitions that use it.
package convert

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// Converter converts objects of one definition to a version. Convert may change and return its arguments, and
// returns the objects in the same order. An error means that none of them was converted.
type Converter interface {
	Convert(
		ctx context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion,
	) ([]*unstructured.Unstructured, error)
}

// Options are the dependencies and settings of converters.
type Options struct {
	// Webhooks has the HTTP clients of webhooks.
	Webhooks *webhook.Pool
	// Metrics counts the calls of webhooks. It may be nil.
	Metrics *Metrics
	// Timeout limits one call of a webhook. Zero means webhook.DefaultTimeout.
	Timeout time.Duration
}

// New returns the converter of the definition with this name. A misconfigured webhook makes its first call fail,
// not New, so that objects which need no conversion can be served.
func New(o Options, name string, spec *apiextensionsv1.CustomResourceDefinitionSpec) (Converter, error) {
	c := versionChecker{group: spec.Group}
	for i := range spec.Versions {
		c.names = append(c.names, spec.Versions[i].Name)
	}
	conversion := spec.Conversion
	switch {
	case conversion == nil || conversion.Strategy == apiextensionsv1.NoneConverter:
		c.strategy = noConversion{}
	case conversion.Strategy != apiextensionsv1.WebhookConverter:
		return nil, fmt.Errorf("unknown conversion strategy %q for CRD %s", conversion.Strategy, name)
	case conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil:
		return nil, fmt.Errorf("the conversion webhook of %s has no client configuration", name)
	default:
		target, timeout := targetOf(conversion.Webhook.ClientConfig), o.Timeout
		if timeout == 0 {
			timeout = webhook.DefaultTimeout
		}
		c.strategy = &webhookConverter{
			name: name, review: reviewVersion(conversion.Webhook.ConversionReviewVersions), metrics: o.Metrics, timeout: timeout,
			client: sync.OnceValues(func() (*webhook.Client, error) { return o.Webhooks.Client(target) }),
		}
	}
	return &c, nil
}

func targetOf(c *apiextensionsv1.WebhookClientConfig) webhook.Target {
	t := webhook.Target{CABundle: c.CABundle}
	if c.URL != nil {
		t.URL = *c.URL
	}
	if s := c.Service; s != nil {
		t.Service = &webhook.Service{Namespace: s.Namespace, Name: s.Name}
		if s.Port != nil {
			t.Service.Port = *s.Port
		}
		if s.Path != nil {
			t.Service.Path = *s.Path
		}
	}
	return t
}

// reviewVersion returns the first accepted version of ConversionReview that the server supports, or "".
func reviewVersion(accepted []string) string {
	for _, v := range accepted {
		if v == "v1" || v == "v1beta1" {
			return v
		}
	}
	return ""
}

var errNoReviewVersion = errors.New("no supported conversion review versions")

// versionChecker checks that the objects have, and are converted to, versions of the definition, and calls
// strategy.
type versionChecker struct {
	group    string
	names    []string
	strategy Converter
}

func (c *versionChecker) has(v schema.GroupVersion) bool {
	return v.Group == c.group && slices.Contains(c.names, v.Version)
}

func (c *versionChecker) Convert(
	ctx context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion,
) ([]*unstructured.Unstructured, error) {
	if !c.has(to) {
		return nil, fmt.Errorf("request to convert CR to an invalid group/version: %s", to)
	}
	for i, obj := range objs {
		from := obj.GroupVersionKind().GroupVersion()
		switch {
		case c.has(from):
		case len(objs) == 1:
			return nil, fmt.Errorf("request to convert CR from an invalid group/version: %s", from)
		default:
			return nil, fmt.Errorf("request to convert CR list failed, list index %d has invalid group/version: %s", i, from)
		}
	}
	return c.strategy.Convert(ctx, objs, to)
}

// noConversion changes only the apiVersion of objects.
type noConversion struct{}

func (noConversion) Convert(
	_ context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion,
) ([]*unstructured.Unstructured, error) {
	version := to.String()
	for _, obj := range objs {
		obj.SetAPIVersion(version)
	}
	return objs, nil
}
