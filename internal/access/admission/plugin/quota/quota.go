// Package quota is the admission plug-in ResourceQuota: it refuses writes that exceed the quotas of the namespace, and
// charges the others. The name in --enable-admission-plugins is ResourceQuota.
//
// A charge is the new status.used of each quota that the object counts for. It is written in the transaction of the
// object, on condition that no quota has changed since it was read. So a quota is never exceeded, however many servers
// and writers there are. Deletions do not reduce the usage here: the quota controller counts again.
//
// Writers of one namespace in the same process take turns, because all of them change the same quotas: without turns, only one
// of them would succeed, and the others would fail on the condition and try again. The quotas of the last write are kept while
// others wait, because the cache may not have them yet.
//
// A quota limits nothing before its status has the limits of its spec. Another server may have just written that
// status. So on a store with several servers a write also has the condition that such a quota has not changed.
package quota

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/quota"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Plugin returns the plug-in.
func Plugin(reg *registry.Registry, c Config) admission.Plugin {
	p := &plugin{
		objects: reg, quotas: reg.Resource(corev1.Resource("resourcequotas")), limited: c.LimitedResources,
		accounts: accounts{byNamespace: map[string]*account{}},
	}
	return admission.Plugin{Name: "ResourceQuota", Charge: p.charge}
}

type plugin struct {
	objects  quota.Objects
	quotas   *registry.Resource
	limited  []LimitedResource
	accounts accounts
}

// held is a quota as the store had it at a revision.
type held struct {
	key      string // in the store
	revision int64
	quota    *corev1.ResourceQuota // nil if it was deleted
}

// charge implements admission.Plugin.
func (p *plugin) charge(ctx context.Context, a *admission.Attributes) (*admission.Charge, error) {
	if a.Namespace == "" || !handles(a) {
		return nil, nil
	}
	view, err := p.quotas.Reader.Recent(ctx)
	if err != nil || len(p.limited) == 0 && view.Loaded() && view.Snapshot().Len() == 0 {
		return nil, err
	}
	quotas, err := p.list(ctx, a.Namespace, view)
	if err != nil || len(quotas) == 0 && len(p.limited) == 0 {
		return nil, err
	}
	e := quota.New(a.Resource, p.objects)
	if e == nil {
		return nil, nil
	}
	if concerned, err := p.concerned(ctx, e, quotas); err != nil || !concerned {
		return nil, err
	}
	if a.Options.DryRun {
		_, _, err := p.checkLatest(ctx, a, e, nil)
		return nil, err
	}
	mine, err := p.accounts.enter(ctx, a.Namespace)
	if err != nil {
		return nil, err
	}
	if err := p.learn(ctx, mine, a.Conflicts); err != nil {
		p.accounts.leave(mine)
		return nil, err
	}
	changes, behind, err := p.checkLatest(ctx, a, e, mine.known)
	if err != nil || len(changes) == 0 && len(behind) == 0 {
		p.accounts.leave(mine)
		return nil, err
	}
	charge, err := p.write(ctx, changes, behind)
	if err != nil || len(changes) == 0 {
		p.accounts.leave(mine)
		return charge, err
	}
	charge.Done = func(revision int64) {
		for _, c := range changes {
			if revision > 0 {
				c.revision = revision
				mine.known[c.key] = c
			}
		}
		p.accounts.leave(mine)
	}
	return charge, nil
}

// handles reports whether a write can raise the usage of a quota.
func handles(a *admission.Attributes) bool {
	create, update := a.Operation == admission.Create, a.Operation == admission.Update
	switch a.Resource {
	case corev1.Resource("pods"):
		switch {
		case a.Subresource == "resize":
			return update
		case a.Subresource == "" && update:
			// The pod comes into another scope.
			return quota.Terminating(a.Object.(*corev1.Pod)) != quota.Terminating(a.Old.(*corev1.Pod))
		}
	case corev1.Resource("persistentvolumeclaims"):
		return update && a.Subresource == "status" || (create || update) && a.Subresource == ""
	case corev1.Resource("services"), resourcev1.Resource("resourceclaims"):
		return (create || update) && a.Subresource == ""
	case corev1.Resource("namespaces"):
		return false
	}
	return create && a.Subresource == ""
}

// concerned reports whether a quota, or the configuration, may limit objects of the evaluator's resource.
func (p *plugin) concerned(ctx context.Context, e *quota.Evaluator, quotas []held) (bool, error) {
	for i := range quotas {
		if names, err := e.Tracked(ctx, quotas[i].quota.Status.Hard); err != nil || len(names) > 0 {
			return true, err
		}
		if behind, err := p.behind(ctx, e, quotas[i].quota); err != nil || behind {
			return true, err
		}
	}
	return slices.ContainsFunc(p.limited, func(l LimitedResource) bool {
		return l.of(e.Resource) || e.Scoped() && len(l.MatchScopes) > 0
	}), nil
}

// behind reports whether the status of a quota lacks a limit in its spec for the evaluator's resource, and another
// server may have written this limit to the status.
func (p *plugin) behind(ctx context.Context, e *quota.Evaluator, q *corev1.ResourceQuota) (bool, error) {
	if storage.IsExclusive(p.quotas.Store()) {
		return false, nil
	}
	names, err := e.Tracked(ctx, q.Spec.Hard)
	return slices.ContainsFunc(names, func(name corev1.ResourceName) bool {
		_, there := q.Status.Hard[name]
		return !there
	}), err
}

// list returns the quotas of a namespace, sorted by name.
func (p *plugin) list(ctx context.Context, namespace string, view *cache.View) (out []held, err error) {
	var failed error
	err = view.Ascend(ctx, "", namespace+"/", 0, func(o *cache.Object) bool {
		var obj registry.Object
		if o, failed = p.quotas.Reader.Readable(ctx, o); failed != nil {
			return false
		}
		if obj, failed = p.quotas.Decoder.Decode(ctx, o); failed != nil {
			return false
		}
		q := obj.(*corev1.ResourceQuota)
		out = append(out, held{p.quotas.StoreKey(q.Namespace, q.Name), o.Revision, q})
		return true
	})
	return out, errors.Join(err, failed)
}

// learn adds the quotas in conflicts to the known quotas.
func (p *plugin) learn(ctx context.Context, mine *account, conflicts []*storage.ConflictError) error {
	for _, c := range conflicts {
		key := c.Condition.Key
		if !strings.HasPrefix(key, p.quotas.StoreKey(mine.namespace, "")) || c.Revision <= mine.known[key].revision {
			continue
		}
		now := held{key: key, revision: c.Revision}
		if c.Current.ModRevision != 0 {
			obj, err := p.quotas.Decoder.DecodeEntry(ctx, c.Current)
			if err != nil {
				return err
			}
			now.revision, now.quota = c.Current.ModRevision, obj.(*corev1.ResourceQuota)
		}
		mine.known[key] = now
	}
	return nil
}

// checkLatest returns the quotas with the usage after the write, and the quotas whose status is behind. It refuses
// a write only after it has read all changes of the quotas by other servers.
func (p *plugin) checkLatest(
	ctx context.Context, a *admission.Attributes, e *quota.Evaluator, known map[string]held,
) (changes, behind []held, err error) {
	look := func(latest func(context.Context) (*cache.View, error)) ([]held, error) {
		view, err := latest(ctx)
		if err != nil {
			return nil, err
		}
		quotas, err := p.list(ctx, a.Namespace, view)
		if err != nil {
			return nil, err
		}
		quotas, behind = newest(quotas, known), nil
		for _, h := range quotas {
			is, err := p.behind(ctx, e, h.quota)
			if err != nil {
				return nil, err
			}
			if is {
				behind = append(behind, h)
			}
		}
		return p.check(ctx, a, e, quotas)
	}
	changes, err = look(p.quotas.Reader.Recent)
	if err != nil && !storage.IsExclusive(p.quotas.Store()) {
		changes, err = look(p.quotas.Reader.Current)
	}
	return changes, behind, err
}

// newest replaces quotas by the known ones that are newer.
func newest(quotas []held, known map[string]held) []held {
	out := quotas[:0]
	for _, h := range quotas {
		if k, ok := known[h.key]; ok && k.revision > h.revision {
			h = k
		}
		if h.quota != nil {
			out = append(out, h)
		}
	}
	return out
}

// write returns the charge that stores the changed quotas, on condition that neither they nor the quotas in behind have
// changed meanwhile.
func (p *plugin) write(ctx context.Context, changes, behind []held) (*admission.Charge, error) {
	c := &admission.Charge{Store: p.quotas.Store()}
	for _, h := range changes {
		op, err := p.quotas.Writer.PutOp(ctx, h.quota)
		if err != nil {
			return nil, err
		}
		c.Conditions = append(c.Conditions, storage.Condition{Key: h.key, ModRevision: h.revision})
		c.Ops = append(c.Ops, op)
	}
	for _, h := range behind {
		if !slices.ContainsFunc(changes, func(c held) bool { return c.key == h.key }) {
			c.Conditions = append(c.Conditions, storage.Condition{Key: h.key, ModRevision: h.revision})
		}
	}
	return c, nil
}

// of reports whether the entry is about a resource.
func (l *LimitedResource) of(r schema.GroupResource) bool {
	return l.APIGroup == r.Group && l.Resource == r.Resource
}
