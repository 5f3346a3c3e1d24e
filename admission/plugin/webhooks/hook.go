package webhooks

import (
	"context"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/admission/celvars"
)

// concerns returns whether a webhook has to be called for a write, and the names in whose version it asks for the
// objects.
func (p *Plugins) concerns(ctx context.Context, h *hook, a *admission.Attributes) (admission.Names, bool, error) {
	if h.broken != nil {
		return admission.Names{}, false, kerrors.NewInternalError(h.broken)
	}
	names, ok, err := p.matcher.Match(ctx, &h.criteria, a)
	if err != nil || !ok || len(h.conditions) == 0 {
		return names, ok, err
	}
	ok, err = p.meetsConditions(ctx, h, a, names)
	if err == nil || h.ignore {
		return names, ok && err == nil, nil
	}
	return names, false, a.Forbidden(err)
}

// meetsConditions returns whether a write meets the match conditions of a webhook.
func (p *Plugins) meetsConditions(
	ctx context.Context, h *hook, a *admission.Attributes, names admission.Names,
) (bool, error) {
	object, err := p.o.Versions.Convert(ctx, a, a.Object, names)
	if err != nil {
		return false, err
	}
	old, err := p.o.Versions.Convert(ctx, a, a.Old, names)
	if err != nil {
		return false, err
	}
	return h.conditions.Match(ctx, celvars.NewWrite(a, names, object, old).Values(celvars.Inputs{
		Authorizer: celvars.NewAuthorizer(ctx, p.o.Authorizer, a),
	}))
}
