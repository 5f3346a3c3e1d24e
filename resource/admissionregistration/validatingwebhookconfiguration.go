package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func validatingWebhookConfiguration() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "admissionregistration", Resource: "validatingwebhookconfigurations",
			Singular: "validatingwebhookconfiguration", Name: "ValidatingWebhookConfiguration",
			Categories: categories,
		},
		Versions: []registry.Version{declare.Version("v1", func(c *admissionv1.ValidatingWebhookConfiguration) {
			for i := range c.Webhooks {
				w := &c.Webhooks[i]
				hook{&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, &w.ClientConfig,
					w.Rules}.setDefaults()
			}
		})},
		Storage:  registry.Storage{Version: "v1", Path: "validatingwebhookconfigurations"},
		Metadata: registry.Metadata{AnyFinalizer: true},
		Strategy: registry.Strategy[*admissionv1.ValidatingWebhookConfiguration]{
			Generation: true,
			// A change from nil to an empty list increments the generation, too.
			GenerationOf: func(c *admissionv1.ValidatingWebhookConfiguration) any {
				return declare.ExactText(c.Webhooks)
			},
		}.Untyped(),
		Table: registry.Table[*admissionv1.ValidatingWebhookConfiguration]{
			Columns: webhookColumns(),
			Cells: declare.Cells(func(c *admissionv1.ValidatingWebhookConfiguration) []any {
				return []any{c.Name, int64(len(c.Webhooks)), core.Age(c.CreationTimestamp)}
			}),
		}.Untyped(),
	}
}
