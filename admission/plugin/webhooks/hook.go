package webhooks

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/admission"
)

// Compiler compiles match conditions.
type Compiler interface {
	// Compile compiles the conditions of one webhook. ignore is true if its failures are ignored.
	Compile(conditions []admissionregistrationv1.MatchCondition, ignore bool) Conditions
}

// Conditions are the match conditions of one webhook, which may be evaluated concurrently.
type Conditions interface {
	// Match returns whether a write meets all conditions. names are those by which the webhook has matched.
	Match(ctx context.Context, a *admission.Attributes, names admission.Names) (bool, error)
}

// concerns returns whether a webhook has to be called for a write, and the version in which it asks for the objects.
func (p *Plugins) concerns(ctx context.Context, h *hook, a *admission.Attributes) (admission.Names, bool, error) {
	if h.broken != nil {
		return admission.Names{}, false, kerrors.NewInternalError(h.broken)
	}
	names, ok, err := p.matcher.Match(ctx, &h.criteria, a)
	if err != nil || !ok || h.conditions == nil {
		return names, ok, err
	}
	ok, err = h.conditions.Match(ctx, a, names)
	if err != nil {
		return names, false, a.Forbidden(err)
	}
	return names, ok, nil
}
