package admissionregistration

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

func mutatingWebhookConfiguration() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "admissionregistration", Resource: "mutatingwebhookconfigurations",
			Singular: "mutatingwebhookconfiguration", Name: "MutatingWebhookConfiguration",
			Categories: categories,
		},
		Versions: []registry.Version{declare.Version("v1", func(c *admissionv1.MutatingWebhookConfiguration) {
			for _, h := range mutatingHooks(c) {
				h.setDefaults()
			}
		})},
		Storage:  registry.Storage{Version: "v1", Path: "mutatingwebhookconfigurations"},
		Metadata: registry.Metadata{AnyFinalizer: true, OnUpdate: registry.MetaNew},
		Strategy: registry.Strategy[*admissionv1.MutatingWebhookConfiguration]{
			Warn:       warnStaticName[*admissionv1.MutatingWebhookConfiguration],
			Generation: true,
			// A change from nil to an empty list increments the generation, too.
			GenerationOf: func(c *admissionv1.MutatingWebhookConfiguration) any { return declare.ExactText(c.Webhooks) },
			Validate: func(_ context.Context, c *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
				return validateWebhooks(mutatingHooks(c), nil)
			},
			ValidateUpdate: func(_ context.Context, c, old *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
				return validateWebhooks(mutatingHooks(c), mutatingHooks(old))
			},
		}.Untyped(),
		Table: registry.Table[*admissionv1.MutatingWebhookConfiguration]{
			Columns: webhookColumns(),
			Cells: declare.Cells(func(c *admissionv1.MutatingWebhookConfiguration) []any {
				return []any{c.Name, int64(len(c.Webhooks)), core.Age(c.CreationTimestamp)}
			}),
		}.Untyped(),
	}
}

// mutatingHooks returns the webhooks of a configuration, which is not nil.
func mutatingHooks(c *admissionv1.MutatingWebhookConfiguration) []hook {
	hooks := make([]hook, len(c.Webhooks))
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		hooks[i] = hook{
			failure: &w.FailurePolicy, match: &w.MatchPolicy, namespaces: &w.NamespaceSelector, objects: &w.ObjectSelector,
			timeout: &w.TimeoutSeconds, client: &w.ClientConfig, rules: w.Rules, name: w.Name, sideEffects: w.SideEffects,
			conditions: w.MatchConditions, reviewVersions: w.AdmissionReviewVersions,
			reinvocation: &w.ReinvocationPolicy,
		}
	}
	return hooks
}
