package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func mutatingWebhookConfiguration() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "admissionregistration", Resource: "mutatingwebhookconfigurations",
			Singular: "mutatingwebhookconfiguration", Name: "MutatingWebhookConfiguration",
			Categories: categories,
		},
		Versions: []registry.Version{declare.Version("v1", func(c *admissionv1.MutatingWebhookConfiguration) {
			for i := range c.Webhooks {
				w := &c.Webhooks[i]
				hook{&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, &w.ClientConfig,
					w.Rules}.setDefaults()
				declare.Pointer(&w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
			}
		})},
		Storage:  registry.Storage{Version: "v1", Path: "mutatingwebhookconfigurations"},
		Metadata: registry.Metadata{AnyFinalizer: true},
		Strategy: registry.Strategy[*admissionv1.MutatingWebhookConfiguration]{
			Generation: true,
			// A change from nil to an empty list increments the generation, too.
			GenerationOf: func(c *admissionv1.MutatingWebhookConfiguration) any { return declare.ExactText(c.Webhooks) },
		}.Untyped(),
		Table: registry.Table[*admissionv1.MutatingWebhookConfiguration]{
			Columns: webhookColumns(),
			Cells: declare.Cells(func(c *admissionv1.MutatingWebhookConfiguration) []any {
				return []any{c.Name, int64(len(c.Webhooks)), core.Age(c.CreationTimestamp)}
			}),
		}.Untyped(),
	}
}
