package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func mutatingWebhookConfiguration() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "admissionregistration",
		Resource: "mutatingwebhookconfigurations", Singular: "mutatingwebhookconfiguration", Name: "MutatingWebhookConfiguration",
		AnyFinalizer: true,
		Categories:   categories,
		Versions: []registry.Version{declare.Version("v1", func() *admissionv1.MutatingWebhookConfiguration { return &admissionv1.MutatingWebhookConfiguration{} }, func(c *admissionv1.MutatingWebhookConfiguration) {
			for i := range c.Webhooks {
				w := &c.Webhooks[i]
				hook{&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, &w.ClientConfig, w.Rules}.setDefaults()
				declare.Pointer(&w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
			}
		})},
		Storage: "v1", StoragePath: "mutatingwebhookconfigurations",
		Columns: webhookColumns(),
		Hooks: registry.HooksOf(registry.TypedHooks[*admissionv1.MutatingWebhookConfiguration]{
			Generation: true,
			// An empty list where there was none counts as a change.
			GenerationOf: func(c *admissionv1.MutatingWebhookConfiguration) any { return declare.Exactly(c.Webhooks) },
			Cells: declare.Cells(func(c *admissionv1.MutatingWebhookConfiguration) []any {
				return []any{c.Name, int64(len(c.Webhooks)), core.Age(c.CreationTimestamp)}
			}),
		}),
	}
}
