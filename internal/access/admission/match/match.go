// Package match decides whether a webhook or a policy concerns a write: by rules of operations and resources, by the
// labels of the namespace and by the labels of the object. A write whose own resource matches no rule may match by an
// equivalent resource: the same objects in another version or group.
package match

import (
	"context"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/admissionregistration"
)

// Rule is one rule. A write must match all of its lists.
type Rule struct {
	admissionregistrationv1.RuleWithOperations
	// ResourceNames are the names of the objects; empty means all.
	ResourceNames []string
}

// Criteria select writes.
type Criteria struct {
	// A write must match one of Rules and none of Exclude.
	Rules, Exclude []Rule
	// Equivalent lets a write match by an equivalent resource.
	Equivalent bool
	// Namespace and Object select by the labels of the namespace and of the object; nil selects everything.
	Namespace, Object labels.Selector
}

// Resources finds equivalent resources: other names of the same objects.
type Resources interface {
	// Equivalents returns the resources, other than gvr itself, that have the same objects as gvr, each with the kind of
	// the resource or of its subresource.
	Equivalents(ctx context.Context, gvr schema.GroupVersionResource, subresource string) []admission.Names
}

// Matcher matches writes. Its methods may be called concurrently.
type Matcher struct {
	objects   admission.Objects
	resources Resources
	exempt    Exemptions
}

// NewMatcher returns a Matcher that reads namespaces from objects, and matches no write of a resource in exempt.
func NewMatcher(objects admission.Objects, resources Resources, exempt Exemptions) *Matcher {
	return &Matcher{objects, resources, exempt}
}

// RulesOf returns the rules of a webhook.
func RulesOf(rules []admissionregistrationv1.RuleWithOperations) []Rule {
	out := make([]Rule, len(rules))
	for i := range rules {
		out[i] = Rule{RuleWithOperations: rules[i]}
	}
	return out
}

// NamedRulesOf returns the rules of a policy.
func NamedRulesOf(rules []admissionregistrationv1.NamedRuleWithOperations) []Rule {
	out := make([]Rule, len(rules))
	for i := range rules {
		out[i] = Rule{rules[i].RuleWithOperations, rules[i].ResourceNames}
	}
	return out
}

// Selector returns the selector of an API object; nil chooses everything.
func Selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// Exemptions are resources of admissionregistration.k8s.io that configure admission. Admission configuration does not apply to
// these resources, because otherwise a wrong configuration could not be removed.
type Exemptions []string

var (
	// FromPolicies are exempt from validating and mutating policies. The configurations of webhooks are not: a policy may protect them.
	FromPolicies = Exemptions{
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
	}
	// FromWebhooks are exempt from validating and mutating webhooks.
	FromWebhooks = append(Exemptions{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"}, FromPolicies...)
)

// Has reports whether a write is exempt.
func (e Exemptions) Has(a *admission.Attributes) bool {
	return a.Resource.Group == admissionregistrationv1.GroupName && slices.Contains(e, a.Resource.Resource)
}

// reviews are the resources that Reviews looks for.
var reviews = admissionregistration.ReviewResources()

// Reviews reports whether a write only asks who a user is or what a user may do. No policy applies to such a
// write, and no webhook if the gate ExcludeAdmissionWebhookVirtualResources is on.
func Reviews(a *admission.Attributes) bool { return slices.Contains(reviews, a.Resource) }

// Match reports whether a write meets the criteria, and by which names of its kind and resource. The error is NotFound
// if the namespace of the write does not exist.
func (m *Matcher) Match(ctx context.Context, c *Criteria, a *admission.Attributes) (admission.Names, bool, error) {
	if m.exempt.Has(a) {
		return admission.Names{}, false, nil
	}
	names, ok := m.byRules(ctx, c, c.Rules, a)
	if !ok {
		return names, false, nil
	}
	if _, excluded := m.byRules(ctx, c, c.Exclude, a); excluded {
		return names, false, nil
	}
	if !matchesObject(c.Object, a) {
		return names, false, nil
	}
	ok, err := m.matchesNamespace(ctx, c.Namespace, a)
	return names, ok, err
}

// byRules returns the names by which one of the rules matches.
func (m *Matcher) byRules(
	ctx context.Context, c *Criteria, rules []Rule, a *admission.Attributes,
) (admission.Names, bool) {
	if matchesAny(rules, a, a.Requested.Resource) {
		return a.Requested, true
	}
	if !c.Equivalent || !slices.ContainsFunc(rules, func(r Rule) bool { return r.mayMatchEquivalent(a) }) {
		return admission.Names{}, false
	}
	for _, other := range m.resources.Equivalents(ctx, a.Requested.Resource, a.Subresource) {
		if matchesAny(rules, a, other.Resource) {
			return other, true
		}
	}
	return admission.Names{}, false
}

func matchesAny(rules []Rule, a *admission.Attributes, gvr schema.GroupVersionResource) bool {
	for i := range rules {
		if rules[i].matchesWrite(a) && rules[i].matchesResource(gvr, a.Subresource) {
			return true
		}
	}
	return false
}

// matchesWrite compares everything but the resource: the name of the object, the operation and the scope.
func (r *Rule) matchesWrite(a *admission.Attributes) bool {
	if len(r.ResourceNames) > 0 && !slices.Contains(r.ResourceNames, a.Name) {
		return false
	}
	operation := admissionregistrationv1.OperationType(a.Operation.String())
	if !slices.Contains(r.Operations, operation) &&
		!slices.Contains(r.Operations, admissionregistrationv1.OperationAll) {
		return false
	}
	if r.Scope == nil || *r.Scope == admissionregistrationv1.AllScopes {
		return true
	}
	namespaced := a.Namespace != "" && !isNamespace(a)
	return namespaced == (*r.Scope == admissionregistrationv1.NamespacedScope)
}

// mayMatchEquivalent reports whether the rule matches the write if group and version are ignored. Equivalent
// resources have the same name, and differ only in group and version.
func (r *Rule) mayMatchEquivalent(a *admission.Attributes) bool {
	return r.matchesWrite(a) && r.matchesName(a.Requested.Resource, a.Subresource)
}

// matchesResource compares group, version and name of a resource.
func (r *Rule) matchesResource(gvr schema.GroupVersionResource, subresource string) bool {
	return containsOrAll(r.APIGroups, gvr.Group) && containsOrAll(r.APIVersions, gvr.Version) &&
		r.matchesName(gvr, subresource)
}

// matchesName compares the name of a resource and its subresource.
func (r *Rule) matchesName(gvr schema.GroupVersionResource, subresource string) bool {
	return slices.ContainsFunc(r.Resources, func(entry string) bool {
		resource, sub, _ := strings.Cut(entry, "/")
		return (resource == "*" || resource == gvr.Resource) && (sub == "*" || sub == subresource)
	})
}

func containsOrAll(list []string, entry string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, entry)
}

// isNamespace reports whether the write is to a Namespace.
func isNamespace(a *admission.Attributes) bool { return a.Resource == corev1.Resource("namespaces") }

// matchesObject reports whether the labels of the new or the old object match. The options of a connection have no
// metadata, so no selector matches them.
func matchesObject(selector labels.Selector, a *admission.Attributes) bool {
	switch {
	case selector == nil || selector.Empty():
		return true
	case a.Operation == admission.Connect:
		return false
	}
	return a.Object != nil && selector.Matches(labels.Set(a.Object.GetLabels())) ||
		a.Old != nil && selector.Matches(labels.Set(a.Old.GetLabels()))
}

// matchesNamespace compares the labels of the namespace. Objects outside of namespaces match, Namespaces are compared
// by their own labels.
func (m *Matcher) matchesNamespace(ctx context.Context, selector labels.Selector, a *admission.Attributes) (bool, error) {
	if selector == nil || selector.Empty() || a.Namespace == "" && !isNamespace(a) {
		return true, nil
	}
	namespace, err := m.Namespace(ctx, a)
	if err != nil {
		return false, err
	}
	return selector.Matches(labels.Set(namespace.GetLabels())), nil
}

// Namespace returns the Namespace of a write, nil for objects outside of namespaces. For a create or update of a
// Namespace it is the new object. The error is NotFound if there is no such Namespace.
func (m *Matcher) Namespace(ctx context.Context, a *admission.Attributes) (registry.Object, error) {
	name := a.Namespace
	if isNamespace(a) {
		written := a.Operation == admission.Create || a.Operation == admission.Update
		if written && a.Subresource == "" && a.Object != nil {
			return a.Object, nil
		}
		name = a.Name
	}
	if name == "" {
		return nil, nil
	}
	found, err := m.objects.Lookup(ctx, corev1.Resource("namespaces"), "", name)
	if err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	if found == nil {
		return nil, kerrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return found, nil
}
