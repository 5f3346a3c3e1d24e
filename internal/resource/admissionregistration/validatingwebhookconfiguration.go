package admissionregistration

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

func validatingWebhookConfiguration() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "admissionregistration", Resource: "validatingwebhookconfigurations",
			Singular: "validatingwebhookconfiguration", Name: "ValidatingWebhookConfiguration",
			Categories: categories,
		},
		Versions: []registry.Version{declare.Version("v1", func(c *admissionv1.ValidatingWebhookConfiguration) {
			for _, h := range validatingHooks(c) {
				h.setDefaults()
			}
		})},
		Storage:  registry.Storage{Version: "v1", Path: "validatingwebhookconfigurations"},
		Metadata: registry.Metadata{AnyFinalizer: true, OnUpdate: registry.MetaNew},
		Strategy: registry.Strategy[*admissionv1.ValidatingWebhookConfiguration]{
			Warn:       warnStaticName[*admissionv1.ValidatingWebhookConfiguration],
			Generation: true,
			// A change from nil to an empty list increments the generation, too.
			GenerationOf: func(c *admissionv1.ValidatingWebhookConfiguration) any {
				return declare.ExactText(c.Webhooks)
			},
			Validate: func(_ context.Context, c *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
				return validateWebhooks(validatingHooks(c), nil)
			},
			ValidateUpdate: func(_ context.Context, c, old *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
				return validateWebhooks(validatingHooks(c), validatingHooks(old))
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

// validatingHooks returns the webhooks of a configuration, which is not nil.
func validatingHooks(c *admissionv1.ValidatingWebhookConfiguration) []hook {
	hooks := make([]hook, len(c.Webhooks))
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		hooks[i] = hook{
			failure: &w.FailurePolicy, match: &w.MatchPolicy, namespaces: &w.NamespaceSelector, objects: &w.ObjectSelector,
			timeout: &w.TimeoutSeconds, client: &w.ClientConfig, rules: w.Rules, name: w.Name, sideEffects: w.SideEffects,
			conditions: w.MatchConditions, reviewVersions: w.AdmissionReviewVersions,
		}
	}
	return hooks
}
