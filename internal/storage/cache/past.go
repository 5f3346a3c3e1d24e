package cache

import (
	"context"
	"errors"

	"github.com/keelson-dev/keelson/internal/storage"
)

// past reads the versions that a store keeps beyond its compaction revision.
type past struct {
	history storage.History
	scope   storage.Scope
}

// Get implements reader.
func (p past) Get(ctx context.Context, key string, revision int64) (storage.Entry, int64, error) {
	e, err := p.history.GetAt(ctx, p.scope, key, revision)
	return e, revision, err
}

// Range implements reader.
func (p past) Range(ctx context.Context, r storage.RangeRequest) (storage.RangeResult, error) {
	return p.history.RangeAt(ctx, p.scope, r)
}

// ViewPast is like ViewAt, but it also works at a revision that the store has compacted and still keeps
// (storage.History). Unless namespace is "", the view may be read in that namespace only. With a store that keeps
// no history, ViewPast is the same as ViewAt.
func (r *Resource) ViewPast(ctx context.Context, revision int64, namespace string) (*View, error) {
	v, err := r.ViewAt(ctx, revision)
	history, ok := r.cache.store.(storage.History)
	if compacted := (*storage.CompactedError)(nil); !ok || !errors.As(err, &compacted) {
		return v, err
	}
	from := past{history, storage.Scope{Prefix: r.config.Prefix, Namespace: namespace}}
	if err := r.store.check(ctx, from, revision); err != nil {
		return nil, err
	}
	return &View{resource: r, from: from, revision: revision, exact: true, memory: r.published.state.Load()}, nil
}
