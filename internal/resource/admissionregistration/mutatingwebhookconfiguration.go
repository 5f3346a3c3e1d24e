package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

func mutatingWebhookConfiguration(gates features.Gates) *registry.Kind {
	return webhookConfiguration(registry.Names{
		Group: group, Package: "admissionregistration", Resource: "mutatingwebhookconfigurations",
		Name: "MutatingWebhookConfiguration", Categories: categories,
	}, mutatingHooks, func(c *admissionv1.MutatingWebhookConfiguration) any { return c.Webhooks },
		gates.Enabled(features.ExcludeAdmissionWebhookVirtualResources))
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
