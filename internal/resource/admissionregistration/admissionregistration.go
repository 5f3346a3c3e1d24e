// Package admissionregistration declares the kinds of the
// admissionregistration.k8s.io API group.
package admissionregistration

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

const group = "admissionregistration.k8s.io"

var categories = []string{"api-extensions"}

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	kinds := []*registry.Kind{
		mutatingAdmissionPolicy(), mutatingAdmissionPolicyBinding(), mutatingWebhookConfiguration(gates),
		validatingAdmissionPolicy(), validatingAdmissionPolicyBinding(), validatingWebhookConfiguration(gates),
	}
	for _, k := range kinds {
		reserveStaticNames(k, gates.Enabled(features.ManifestBasedAdmissionControlConfig))
	}
	return kinds
}

// reserveStaticNames makes a kind warn of names that kube-apiserver reserves for configurations in files. With refuse, it
// refuses new objects with such names.
func reserveStaticNames(k *registry.Kind, refuse bool) {
	const suffix = ".static.k8s.io"
	problem := fmt.Sprintf("names ending with %q are reserved for static manifest-based configurations and cannot be managed "+
		"via the API", suffix)
	reserved := func(obj registry.Object) bool { return strings.HasSuffix(obj.GetName(), suffix) }
	warn, validate := k.Strategy.Warn, k.Strategy.ValidateCreate
	k.Strategy.Warn = func(obj, old registry.Object) (warnings []string) {
		if reserved(obj) && (old != nil || !refuse) {
			warnings = []string{"metadata.name: " + problem}
		}
		if warn != nil {
			warnings = append(warnings, warn(obj, old)...)
		}
		return warnings
	}
	k.Strategy.ValidateCreate = func(ctx context.Context, obj, old registry.Object) (errs field.ErrorList) {
		if validate != nil {
			errs = validate(ctx, obj, old)
		}
		return append(errs, field.InvalidIf(refuse && reserved(obj), field.NewPath("metadata", "name"), obj.GetName(), problem)...)
	}
}

func webhookColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		table.Name,
		table.Column("Webhooks", "integer", "Webhooks indicates the number of webhooks registered in this configuration"),
		table.Age,
	}
}

func bindingColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		table.Name,
		table.Column("PolicyName", "string",
			"PolicyName indicates the policy definition which the policy binding binded to"),
		table.Column("ParamRef", "string", "ParamRef indicates the param resource which sets the configuration param"),
		table.Age,
	}
}

func policyColumns(count, description string) []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		table.Name,
		table.Column(count, "integer", description),
		table.Column("ParamKind", "string", "ParamKind specifies the kind of resources used to parameterize this policy"),
		table.Age,
	}
}

func paramKind(k *admissionv1.ParamKind) string {
	if k == nil {
		return table.Unset
	}
	return k.APIVersion + "/" + k.Kind
}

// paramRef returns the cell of the column ParamRef. A selector is shown as the Go text of its message, such as
// &LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{},},
// because kube-apiserver does the same.
func paramRef(r *admissionv1.ParamRef) string {
	switch {
	case r == nil:
		return table.Unset
	case r.Name != "" && r.Namespace != "":
		return r.Namespace + "/" + r.Name
	case r.Name != "":
		return r.Name
	case r.Selector != nil:
		return r.Selector.String()
	}
	return table.Unset
}

// hook is a webhook of either kind: the fields that have defaults as pointers, and the others.
type hook struct {
	failure             **admissionv1.FailurePolicyType
	match               **admissionv1.MatchPolicyType
	namespaces, objects **metav1.LabelSelector
	timeout             **int32
	reinvocation        **admissionv1.ReinvocationPolicyType // nil for validating webhooks
	client              *admissionv1.WebhookClientConfig
	rules               []admissionv1.RuleWithOperations

	name           string
	sideEffects    *admissionv1.SideEffectClass
	conditions     []admissionv1.MatchCondition
	reviewVersions []string
}

// webhookTimeoutSeconds is the default of timeoutSeconds in v1. In v1beta1 it was 30, the largest allowed value:
// a write waits for every webhook that matches it.
const webhookTimeoutSeconds = 10

// setDefaults sets the defaults of v1. They are stricter than those of v1beta1 (Ignore and Exact), so an object
// from that time may differ from a new one. The fields sideEffects and admissionReviewVersions have no default:
// an author has to decide about them.
func (h hook) setDefaults() {
	declare.Pointer(h.failure, admissionv1.Fail)
	declare.Pointer(h.match, admissionv1.Equivalent)
	declare.Pointer(h.namespaces, metav1.LabelSelector{})
	declare.Pointer(h.objects, metav1.LabelSelector{})
	declare.Pointer(h.timeout, webhookTimeoutSeconds)
	if s := h.client.Service; s != nil {
		declare.Pointer(&s.Port, 443)
	}
	for i := range h.rules {
		defaultRule(&h.rules[i].Rule)
	}
	if h.reinvocation != nil {
		declare.Pointer(h.reinvocation, admissionv1.NeverReinvocationPolicy)
	}
}

func defaultRule(r *admissionv1.Rule) { declare.Pointer(&r.Scope, admissionv1.AllScopes) }

// defaultMatch sets the defaults of the match rules of a policy or binding. By the API convention an empty
// selector matches everything and a nil one nothing, so a missing selector becomes an empty one. A binding
// without matchResources has nil, which adds no restriction to those of the policy.
func defaultMatch(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	declare.Pointer(&m.MatchPolicy, admissionv1.Equivalent)
	declare.Pointer(&m.NamespaceSelector, metav1.LabelSelector{})
	declare.Pointer(&m.ObjectSelector, metav1.LabelSelector{})
	for i := range m.ResourceRules {
		defaultRule(&m.ResourceRules[i].Rule)
	}
	for i := range m.ExcludeResourceRules {
		defaultRule(&m.ExcludeResourceRules[i].Rule)
	}
}
