package webhooks

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/celvars"
)

// concerns reports whether a webhook has to be called for a write, and the names whose version its objects must have.
// kind is the plug-in's name in metrics.
func (p *Plugins) concerns(
	ctx context.Context, h *hook, a *admission.Attributes, kind string,
) (admission.Names, bool, error) {
	if h.broken != nil {
		return admission.Names{}, false, kerrors.NewInternalError(h.broken)
	}
	names, ok, err := p.matcher.Match(ctx, &h.criteria, a)
	if err != nil || !ok || len(h.conditions) == 0 {
		return names, ok, err
	}
	result := p.checkConditions(ctx, h, a, names)
	refused := result.Err != nil && !h.ignore
	p.o.Metrics.MatchConditions("webhook", h.name, kind, a.Operation.String(), result.Failed, result.Match,
		!result.Match && !refused, result.Took)
	if refused {
		return names, false, a.Forbidden(result.Err)
	}
	return names, result.Match, nil
}

// namespaceOf returns the value of namespaceObject, which is null for a Namespace itself, outside of namespaces, and if there
// is no such Namespace. In kube-apiserver it is always null for webhooks.
func (p *Plugins) namespaceOf(ctx context.Context, a *admission.Attributes) *corev1.Namespace {
	if a.Namespace == "" || a.Resource == corev1.Resource("namespaces") {
		return nil
	}
	found, err := p.matcher.Namespace(ctx, a)
	if err != nil {
		return nil
	}
	namespace, _ := found.(*corev1.Namespace)
	return namespace
}

// checkConditions evaluates the match conditions of a webhook.
func (p *Plugins) checkConditions(
	ctx context.Context, h *hook, a *admission.Attributes, names admission.Names,
) celvars.ConditionsResult {
	object, err := p.o.Versions.Convert(ctx, a, a.Object, names)
	if err != nil {
		return celvars.ConditionsResult{Failed: 1, Err: err}
	}
	old, err := p.o.Versions.Convert(ctx, a, a.Old, names)
	if err != nil {
		return celvars.ConditionsResult{Failed: 1, Err: err}
	}
	return h.conditions.Evaluate(ctx, celvars.NewWrite(a, names, object, old).Values(celvars.Inputs{
		Namespace:  p.namespaceOf(ctx, a),
		Authorizer: celvars.NewAuthorizer(ctx, p.o.Authorizer, a),
	}))
}
