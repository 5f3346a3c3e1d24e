// Package policies evaluates admission policies, which change writes (MutatingAdmissionPolicy) or check them
// (ValidatingAdmissionPolicy) by expressions. A policy has the expressions and selects writes; its bindings narrow the
// selection, and have the parameters and the actions for a failed validation. Changes of both take effect with the next
// write: an acknowledged policy applies to every write that begins afterwards.
//
// Common files: source.go follows the policies and bindings, compile.go compiles a policy, params.go finds the
// parameters, paramaccess.go checks who may refer to them, view.go finds the policies for a write and the values of
// variables. ValidatingAdmissionPolicy: validating.go is the plug-in, evaluate.go the evaluation of one policy.
// MutatingAdmissionPolicy: mutating.go is the plug-in, applyconfiguration.go and operations.go apply the two types of
// patches.
package policies

import (
	"context"
	"log/slog"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/match"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
)

// Versions converts objects to and from the versions that policies ask for.
type Versions interface {
	match.Resources
	// Convert returns an object of a write in the version of names; nil if obj is nil. The result must not be
	// changed.
	Convert(ctx context.Context, a *admission.Attributes, obj registry.Object, names admission.Names) (registry.Object, error)
	// Document returns an object of a write as a JSON document in the version of names.
	Document(ctx context.Context, a *admission.Attributes, obj registry.Object, names admission.Names) ([]byte, error)
	// Types returns the merge schema of the objects of a write in the version of names.
	Types(ctx context.Context, names admission.Names) (managedfields.TypeConverter, error)
	// Replace replaces a.Object by the object in a JSON document in the version of names, with the defaults of
	// that version. Unknown and duplicate fields are errors if strict is set.
	Replace(ctx context.Context, a *admission.Attributes, document []byte, names admission.Names, strict bool) error
	// ReplaceTree is like Replace, but gets a decoded document. It may keep and change the document.
	ReplaceTree(ctx context.Context, a *admission.Attributes, document map[string]any, names admission.Names) error
	// OpenKind returns the resource of a kind, nil if there is none. The caller calls done when it has finished.
	OpenKind(ctx context.Context, kind schema.GroupVersionKind) (served *registry.Served, done func(), err error)
}

// Options are the dependencies of policies.
type Options struct {
	Registry *registry.Registry
	Versions Versions
	// Authorizer answers the checks of expressions.
	Authorizer authz.Authorizer
	Metrics    *Metrics
	Log        *slog.Logger
}

// Plugins evaluate the policies of writes. They admit everything until Start.
type Plugins struct {
	o                    *Options
	matcher              *match.Matcher
	mutating, validating *source
}

// New returns the plug-ins.
func New(o Options) *Plugins {
	return &Plugins{
		o: &o, matcher: match.NewMatcher(o.Registry, o.Versions, match.FromPolicies),
		mutating: &source{kind: mutatingKind()}, validating: &source{kind: validatingKind()},
	}
}

// Start loads the policies and follows them in the background. It is called once, before requests are served.
func (p *Plugins) Start(ctx context.Context, background informer.Background) error {
	for _, s := range []*source{p.mutating, p.validating} {
		if err := s.start(ctx, p.o, background); err != nil {
			return err
		}
	}
	return nil
}

// Mutating returns the plug-in MutatingAdmissionPolicy.
func (p *Plugins) Mutating() admission.Plugin {
	return admission.Plugin{Name: mutatingName, Mutate: p.mutate}
}

// Validating returns the plug-in ValidatingAdmissionPolicy.
func (p *Plugins) Validating() admission.Plugin {
	return admission.Plugin{Name: "ValidatingAdmissionPolicy", Validate: p.validate}
}

// exempt reports whether no policy applies to the write.
func exempt(a *admission.Attributes) bool {
	return match.FromPolicies.Has(a) || match.Reviews(a)
}

// criteriaOf returns the criteria of the writes that m matches.
func criteriaOf(m *admissionregistrationv1.MatchResources) (*match.Criteria, error) {
	c := &match.Criteria{
		Rules: match.NamedRulesOf(m.ResourceRules), Exclude: match.NamedRulesOf(m.ExcludeResourceRules),
		Equivalent: m.MatchPolicy != nil && *m.MatchPolicy == admissionregistrationv1.Equivalent,
	}
	if len(c.Rules) == 0 {
		c.Rules = []match.Rule{everything()}
	}
	var err error
	if c.Namespace, err = match.Selector(m.NamespaceSelector); err != nil {
		return nil, err
	}
	c.Object, err = match.Selector(m.ObjectSelector)
	return c, err
}

// everything is the rule that matches all writes.
func everything() match.Rule {
	all := []string{"*"}
	return match.Rule{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: all, APIVersions: all, Resources: []string{"*/*"}},
	}}
}
