package admissionregistration

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/keelson-dev/keelson/internal/machinery/cel/writescope"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

const (
	// minNameSegments requires names such as policy.example.com: the name of a webhook and, behind it, the domain
	// of the organization.
	minNameSegments = 3
	// maxWebhookTimeout is in seconds.
	maxWebhookTimeout = 30
)

// webhookValidation validates the webhooks of one configuration. The fields allow what an update may keep although a
// new configuration may not have it.
type webhookValidation struct {
	policyValidation
	sameConditions   bool // match conditions have not changed, and are not validated
	repeatedNames    bool
	anySideEffects   bool
	anyReviewVersion bool
}

// validateWebhooks validates the webhooks of a configuration; old are those before an update, nil on create.
func validateWebhooks(hooks, old []hook) field.ErrorList {
	v := &webhookValidation{}
	v.conditions = writescope.New(writescope.Options{})
	v.keep(hooks, old)
	path, seen := field.NewPath("webhooks"), sets.New[string]()
	for i := range hooks {
		h, at := &hooks[i], path.Index(i)
		v.webhook(h, at)
		v.add(declare.ValidateReviewVersions(h.reviewVersions, "must specify one of v1, v1beta1", v.anyReviewVersion,
			at.Child("admissionReviewVersions"))...)
		v.add(field.DuplicateIf(h.name != "" && seen.Has(h.name) && !v.repeatedNames, at.Child("name"), h.name)...)
		seen.Insert(h.name)
	}
	return v.errs
}

// keep finds what the webhooks before the update had.
// The rules came with v1. Objects from v1beta1 may break them, and their controllers must be able to update them.
// One webhook of the old list with a value that is now refused allows such values in all webhooks of the new
// list.
func (v *webhookValidation) keep(hooks, old []hook) {
	if old == nil {
		return
	}
	v.sameConditions = len(old) == len(hooks)
	v.stored = sets.New[string]()
	seen := sets.New[string]()
	for i := range old {
		h := &old[i]
		// Conditions are compared by the index of their webhook. hooks[i] exists, because sameConditions is false
		// for lists of different lengths and && does not evaluate the comparison then.
		v.sameConditions = v.sameConditions && equality.Semantic.DeepEqual(h.conditions, hooks[i].conditions)
		for _, c := range h.conditions {
			v.stored.Insert(c.Expression)
		}
		v.repeatedNames = v.repeatedNames || seen.Has(h.name)
		seen.Insert(h.name)
		v.anySideEffects = v.anySideEffects || h.sideEffects == nil || !slices.Contains(harmless(), *h.sideEffects)
		v.anyReviewVersion = v.anyReviewVersion || !declare.HasReviewVersion(h.reviewVersions)
	}
}

// harmless are the side effects of webhooks that may be called for a dry run.
func harmless() []admissionv1.SideEffectClass {
	return []admissionv1.SideEffectClass{admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun}
}

func (v *webhookValidation) webhook(h *hook, path *field.Path) {
	v.add(validateWebhookName(h.name, path.Child("name"))...)
	for i := range h.rules {
		v.add(validateRule(&h.rules[i], path.Child("rules").Index(i))...)
	}
	v.add(field.MandatoryOneOf(path.Child("failurePolicy"), *h.failure, admissionv1.Fail, admissionv1.Ignore)...)
	v.add(field.MandatoryOneOf(path.Child("matchPolicy"), *h.match, admissionv1.Equivalent, admissionv1.Exact)...)
	v.sideEffects(h.sideEffects, path.Child("sideEffects"))
	if n := *h.timeout; n != nil && (*n < 1 || *n > maxWebhookTimeout) {
		v.add(field.Invalid(path.Child("timeoutSeconds"), *n, "the timeout value must be between 1 and 30 seconds"))
	}
	v.add(field.LabelSelector(path.Child("namespaceSelector"), *h.namespaces)...)
	v.add(field.LabelSelector(path.Child("objectSelector"), *h.objects)...)
	v.add(declare.ValidateWebhookClient(h.client.URL, (*declare.WebhookService)(h.client.Service),
		path.Child("clientConfig"))...)
	if !v.sameConditions {
		v.matchConditions(h.conditions, path.Child("matchConditions"))
	}
	if h.reinvocation != nil {
		v.add(field.OptionalOneOf(path.Child("reinvocationPolicy"), *h.reinvocation, admissionv1.IfNeededReinvocationPolicy,
			admissionv1.NeverReinvocationPolicy)...)
	}
}

// validateWebhookName validates the name of a webhook, a domain such as policy.example.com.
func validateWebhookName(name string, path *field.Path) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs = append(errs, field.DNSSubdomain(path, name)...)
	return append(errs, field.InvalidIf(len(errs) == 0 && strings.Count(name, ".")+1 < minNameSegments, path, name,
		"should be a domain with at least three segments separated by dots")...)
}

// sideEffects validates the side effects of a webhook. The values Some and Unknown are only kept from v1beta1: a
// dry run that matches such a webhook fails. nil is refused in any case.
func (v *webhookValidation) sideEffects(class *admissionv1.SideEffectClass, path *field.Path) {
	allowed := harmless()
	if v.anySideEffects {
		allowed = append(allowed, admissionv1.SideEffectClassSome, admissionv1.SideEffectClassUnknown)
	}
	switch {
	case class == nil:
		v.add(field.Required(path, "must specify one of None, NoneOnDryRun"))
	case !slices.Contains(allowed, *class):
		v.add(field.NotSupported(path, *class, allowed))
	}
}
