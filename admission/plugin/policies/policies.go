// Package policies judges writes by the expressions of policies (ValidatingAdmissionPolicy). A policy has the
// expressions and says which writes it can judge; its bindings say which of them it does judge, with which parameters,
// and what follows if an expression is false. Changes of both take effect with the next write: a policy that was
// acknowledged judges every write that begins afterwards.
//
// Files: source.go follows the policies and bindings, compile.go compiles a policy, params.go finds the parameters,
// validating.go is the plug-in and evaluate.go the evaluation of one policy.
package policies

import (
	"context"
	"log/slog"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/admission/match"
	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/registry/informer"
)

// Versions shows objects in the versions that policies ask for.
type Versions interface {
	match.Resources
	// Convert returns an object of a write in the version of names, nil for no object. It must not be changed.
	Convert(ctx context.Context, a *admission.Attributes, obj registry.Object, names admission.Names) (registry.Object, error)
	// OpenKind returns the resource of a kind, nil if there is none. The caller calls done when it has finished.
	OpenKind(ctx context.Context, kind schema.GroupVersionKind) (served *registry.Served, done func(), err error)
}

// Observer records the evaluation of expressions.
type Observer interface {
	// PolicyCheck records one expression. action is allow, deny, audit or warn; failure is no_error, compile_error,
	// out_of_budget or invalid_error.
	PolicyCheck(policy, binding, failure, action string, took time.Duration)
}

// Options are what policies need.
type Options struct {
	Registry *registry.Registry
	Versions Versions
	// Authorizer answers the checks of expressions.
	Authorizer authz.Authorizer
	// Observer may be nil.
	Observer Observer
	Log      *slog.Logger
}

// Plugins judge writes by policies. They admit everything until Start.
type Plugins struct {
	o          *Options
	matcher    *match.Matcher
	validating source
}

// New returns the plug-ins.
func New(o Options) *Plugins {
	return &Plugins{o: &o, matcher: match.NewMatcher(o.Registry, o.Versions)}
}

// Start loads the policies and follows them in the background. It is called once, before requests are served.
func (p *Plugins) Start(ctx context.Context, background informer.Background) error {
	return p.validating.start(ctx, p.o, background)
}

// Validating returns the plug-in ValidatingAdmissionPolicy.
func (p *Plugins) Validating() admission.Plugin {
	return admission.Plugin{Name: "ValidatingAdmissionPolicy", Validate: p.validate}
}

// reviews are resources whose objects are questions. No policy judges them, because a wrong one could stop the cluster.
var reviews = map[string][]string{
	"authentication.k8s.io": {"selfsubjectreviews", "tokenreviews"},
	"authorization.k8s.io": {
		"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews",
	},
}

// exempt returns whether no policy judges the write.
func exempt(a *admission.Attributes) bool {
	return match.Exempt(a) || slices.Contains(reviews[a.Resource.Group], a.Resource.Resource)
}

// criteriaOf returns which writes are meant.
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
