// Package convert brings custom resources from one version of their definition to
// another: by changing what version they say they have, or by asking the
// definition's webhook (ConversionReview of apiextensions.k8s.io).
//
// Nothing is shared between the definitions but connections to the very same
// webhook, so that one that is broken or hangs is the matter of its own kinds.
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

	"github.com/keelson-dev/keelson/webhook"
)

// A Converter brings objects of one definition to a version. It may change and
// return its arguments, and keeps their order. An error concerns all of them.
type Converter interface {
	Convert(ctx context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion) ([]*unstructured.Unstructured, error)
}

// Options are what converters are made with.
type Options struct {
	// Webhooks keeps the clients.
	Webhooks *webhook.Pool
	// Metrics counts calls of webhooks; nothing does if nil.
	Metrics *Metrics
	// Timeout is that of a call; webhook.DefaultTimeout if zero.
	Timeout time.Duration
}

// New returns the converter of the definition of a name. The time at which a
// webhook turns out to be misconfigured is the first call of it: objects that need no
// conversion are served.
func New(o Options, name string, spec *apiextensionsv1.CustomResourceDefinitionSpec) (Converter, error) {
	c := versions{group: spec.Group}
	for i := range spec.Versions {
		c.names = append(c.names, spec.Versions[i].Name)
	}
	conversion := spec.Conversion
	switch {
	case conversion == nil || conversion.Strategy == apiextensionsv1.NoneConverter:
		c.strategy = none{}
	case conversion.Strategy != apiextensionsv1.WebhookConverter:
		return nil, fmt.Errorf("unknown conversion strategy %q for CRD %s", conversion.Strategy, name)
	case conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil:
		return nil, fmt.Errorf("the conversion webhook of %s has no client configuration", name)
	default:
		target, timeout := targetOf(conversion.Webhook.ClientConfig), o.Timeout
		if timeout == 0 {
			timeout = webhook.DefaultTimeout
		}
		c.strategy = &remote{
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

// reviewVersion is the first that the server knows too, "" if there is none.
func reviewVersion(accepted []string) string {
	for _, v := range accepted {
		if v == "v1" || v == "v1beta1" {
			return v
		}
	}
	return ""
}

var errNoReviewVersion = errors.New("no supported conversion review versions")

// versions sees to it that objects are of versions that the definition has.
type versions struct {
	group    string
	names    []string
	strategy Converter
}

func (c *versions) has(v schema.GroupVersion) bool {
	return v.Group == c.group && slices.Contains(c.names, v.Version)
}

func (c *versions) Convert(ctx context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion) ([]*unstructured.Unstructured, error) {
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

// none changes the version that objects say they have, and nothing else.
type none struct{}

func (none) Convert(_ context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion) ([]*unstructured.Unstructured, error) {
	version := to.String()
	for _, obj := range objs {
		obj.SetAPIVersion(version)
	}
	return objs, nil
}
