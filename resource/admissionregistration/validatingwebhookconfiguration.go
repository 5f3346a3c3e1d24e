package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func validatingWebhookConfiguration() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "admissionregistration",
		Resource: "validatingwebhookconfigurations", Singular: "validatingwebhookconfiguration", Name: "ValidatingWebhookConfiguration",
		AnyFinalizer: true,
		Categories:   categories,
		Versions: []registry.Version{declare.Version("v1", func() *admissionv1.ValidatingWebhookConfiguration {
			return &admissionv1.ValidatingWebhookConfiguration{}
		}, func(c *admissionv1.ValidatingWebhookConfiguration) {
			for i := range c.Webhooks {
				w := &c.Webhooks[i]
				hook{&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, &w.ClientConfig, w.Rules}.setDefaults()
			}
		})},
		Storage: "v1", StoragePath: "validatingwebhookconfigurations",
		Columns: webhookColumns(),
		Hooks: registry.HooksOf(registry.TypedHooks[*admissionv1.ValidatingWebhookConfiguration]{
			Generation: true,
			// An empty list where there was none counts as a change.
			GenerationOf: func(c *admissionv1.ValidatingWebhookConfiguration) any { return declare.Exactly(c.Webhooks) },
			Cells: declare.Cells(func(c *admissionv1.ValidatingWebhookConfiguration) []any {
				return []any{c.Name, int64(len(c.Webhooks)), core.Age(c.CreationTimestamp)}
			}),
		}),
	}
}
