package quota

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/resource/quota"
)

// matching is a quota that a write counts for.
type matching struct {
	held
	names []corev1.ResourceName // the limited names that apply to the object
}

// check checks a write against quotas, and returns the changed quotas.
func (p *plugin) check(
	ctx context.Context, a *admission.Attributes, e *quota.Evaluator, quotas []held,
) ([]held, error) {
	limitedScopes, err := p.limitedScopes(a, e)
	if err != nil {
		return nil, nil //nolint:nilerr // kube-apiserver admits objects that it cannot compare with the configuration
	}
	matches, coveredScopes, err := match(ctx, a, e, quotas)
	if err != nil {
		return nil, err
	}
	usage, err := e.Usage(ctx, a.Object)
	if err != nil {
		return nil, err
	}
	var negative []corev1.ResourceName
	for _, name := range quota.Names(usage) {
		if q := usage[name]; q.Sign() < 0 {
			negative = append(negative, name)
		}
	}
	if len(negative) > 0 {
		return nil, a.Forbiddenf("quota usage is negative for resource(s): %s", quota.FormatNames(negative))
	}
	deltas, any, err := deltas(ctx, a, e, matches, usage)
	if err != nil || !any {
		return nil, err
	}
	if err := p.covered(a, e, usage, matches, limitedScopes, coveredScopes); err != nil {
		return nil, err
	}
	var changes []held
	for i, m := range matches {
		used, err := m.charge(a, deltas[i])
		if err != nil {
			return nil, err
		}
		if used != nil {
			changed := m.held
			changed.quota = m.quota.DeepCopy()
			changed.quota.Status.Used = used
			changes = append(changes, changed)
		}
	}
	return changes, nil
}

// match returns the quotas that the object counts for, and all scopes of quotas that the object is in. It refuses
// an object that does not specify a resource that a quota limits, or whose quota has no usage in its status yet.
func match(ctx context.Context, a *admission.Attributes, e *quota.Evaluator, quotas []held) (
	matches []matching, covered []corev1.ScopedResourceSelectorRequirement, err error,
) {
	for _, h := range quotas {
		in := true
		scopes := quota.Scopes(h.quota)
		for i := range scopes {
			one, err := e.InScope(&scopes[i], a.Object)
			if err != nil {
				return nil, nil, apierr.New(http.StatusInternalServerError, "", fmt.Sprintf(
					"error matching scopes of quota %s, err: error on matching scope %v: %v", h.quota.Name, scopes[i], err))
			}
			if one {
				covered = append(covered, scopes[i])
			}
			in = in && one
		}
		names, err := e.Tracked(ctx, h.quota.Status.Hard)
		if err != nil {
			return nil, nil, err
		}
		if !in || len(names) == 0 {
			continue
		}
		if missing := e.Missing(names, a.Object); missing != "" {
			return nil, nil, a.Forbiddenf("failed quota: %s: must specify %s", h.quota.Name, missing)
		}
		for _, name := range names {
			if _, ok := h.quota.Status.Used[name]; !ok {
				return nil, nil,
					a.Forbiddenf("status unknown for quota: %s, resources: %s", h.quota.Name, quota.FormatNames(names))
			}
		}
		matches = append(matches, matching{h, names})
	}
	return matches, covered, nil
}

// deltas returns by how much a write raises the usage of each quota. any is false if it raises nothing.
func deltas(
	ctx context.Context, a *admission.Attributes, e *quota.Evaluator, matches []matching, usage corev1.ResourceList,
) (out []corev1.ResourceList, any bool, err error) {
	whole := quota.Increase(usage, nil)
	more := whole
	if a.Operation == admission.Update {
		old, err := e.Usage(ctx, a.Old)
		if err != nil {
			return nil, false, err
		}
		more = quota.Increase(usage, old)
	}
	for _, m := range matches {
		delta := whole
		if a.Operation == admission.Update {
			// An object that was not in the scopes of the quota before counts as new.
			in, err := e.InScopes(quota.Scopes(m.quota), a.Old)
			if err != nil {
				return nil, false, err
			}
			if in {
				delta = more
			}
		}
		out = append(out, delta)
		any = any || len(delta) > 0
	}
	return out, any || len(matches) == 0 && len(more) > 0, nil
}

// charge returns the usage of the quota after a write that uses delta more; nil if nothing changes.
func (m *matching) charge(a *admission.Attributes, delta corev1.ResourceList) (corev1.ResourceList, error) {
	hard, was := m.quota.Status.Hard, m.quota.Status.Used
	requested := quota.Only(delta, quota.Names(hard))
	if len(requested) == 0 {
		return nil, nil
	}
	used := was.DeepCopy()
	if used == nil {
		used = corev1.ResourceList{}
	}
	quota.Add(used, requested)
	var exceeded []corev1.ResourceName
	for _, name := range quota.Names(requested) {
		if q := used[name]; q.Cmp(hard[name]) > 0 {
			exceeded = append(exceeded, name)
		}
	}
	// A status reports something that has already happened, so it is not refused.
	if len(exceeded) > 0 && a.Subresource != "status" {
		return nil, a.Forbiddenf("exceeded quota: %s, requested: %s, used: %s, limited: %s", m.quota.Name,
			quota.Format(quota.Only(requested, exceeded)), quota.Format(quota.Only(was, exceeded)),
			quota.Format(quota.Only(hard, exceeded)))
	}
	return used, nil
}

// limitedScopes returns the scopes of the configuration that the object is in.
func (p *plugin) limitedScopes(
	a *admission.Attributes, e *quota.Evaluator,
) (out []corev1.ScopedResourceSelectorRequirement, err error) {
	if !e.Scoped() {
		return nil, nil
	}
	for _, l := range p.limited {
		for i := range l.MatchScopes {
			in, err := e.InScope(&l.MatchScopes[i], a.Object)
			if err != nil {
				return nil, err
			}
			if in {
				out = append(out, l.MatchScopes[i])
			}
		}
	}
	return out, nil
}

// covered refuses an object if a limited resource that it uses has no quota.
func (p *plugin) covered(
	a *admission.Attributes, e *quota.Evaluator, usage corev1.ResourceList, matches []matching,
	limited, covered []corev1.ScopedResourceSelectorRequirement,
) error {
	var uncovered []corev1.ResourceName
	for _, name := range quota.Names(usage) {
		q := usage[name]
		if q.Sign() > 0 && p.limits(e, name) &&
			!slices.ContainsFunc(matches, func(m matching) bool { return slices.Contains(m.names, name) }) {
			uncovered = append(uncovered, name)
		}
	}
	if len(uncovered) > 0 {
		return a.Forbiddenf("insufficient quota to consume: %s", quota.FormatNames(uncovered))
	}
	limited = slices.DeleteFunc(limited, func(l corev1.ScopedResourceSelectorRequirement) bool {
		return slices.ContainsFunc(covered,
			func(c corev1.ScopedResourceSelectorRequirement) bool { return c.ScopeName == l.ScopeName })
	})
	if len(limited) > 0 {
		return apierr.New(http.StatusInternalServerError, "",
			fmt.Sprintf("insufficient quota to match these scopes: %v", limited))
	}
	return nil
}

// limits reports whether the configuration requires a quota for a name.
func (p *plugin) limits(e *quota.Evaluator, name corev1.ResourceName) bool {
	return slices.ContainsFunc(p.limited, func(l LimitedResource) bool {
		return l.of(e.Resource) && slices.ContainsFunc(l.MatchContains,
			func(part string) bool { return strings.Contains(string(name), part) })
	})
}
