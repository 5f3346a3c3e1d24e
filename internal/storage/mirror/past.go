package mirror

import (
	"context"
	"errors"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// Store is the store of a cluster that has a Mirror, and so a past.
type Store struct {
	*etcd.Store
	storage.History
	Mirror *Mirror
}

var (
	_ storage.Store   = (*Store)(nil)
	_ storage.History = (*Store)(nil)
	_ storage.Store   = Part{}
	_ storage.History = Part{}
)

// Close closes the mirror and the store of the cluster.
func (s *Store) Close() error { return errors.Join(s.Mirror.Close(), s.Store.Close()) }

// Part is a part of a Store.
type Part struct {
	etcd.Part
	storage.History
}

// NewStore returns a Store.
func NewStore(m *Mirror) *Store { return &Store{m.o.Source, past{m}, m} }

// Parts is etcd.Store.Parts.
func (s *Store) Parts(prefix string) (list []Part) {
	for _, p := range s.Store.Parts(prefix) {
		list = append(list, Part{p, s.History})
	}
	return list
}

// past is the history of a cluster. Each method waits until the mirror has what the cluster has, and fails with *storage.NoPastError
// if that takes too long.
type past struct{ m *Mirror }

// Floor implements storage.History. While there is no mirror, nothing can be read.
func (p past) Floor(scope storage.Scope) int64 {
	if s, err := p.m.store(); err == nil {
		return s.Floor(scope)
	}
	return p.m.o.Source.Stats().Revision
}

// at returns the mirror when it has a revision of the cluster, and the revision at which the mirror has the same keys: it has no
// revision for what is not mirrored.
func (p past) at(ctx context.Context, revision int64) (s *embedded.Store, same int64, err error) {
	f, err := p.m.await(ctx, revision)
	if err != nil {
		return nil, 0, err
	}
	return f.Source(), min(revision, f.Revision()), nil
}

// now returns the mirror when it has all changes that the cluster has.
func (p past) now(ctx context.Context) (*embedded.Store, error) {
	f, err := p.m.current(ctx)
	if err != nil {
		return nil, err
	}
	return f.Source(), nil
}

// GetAt implements storage.History.
func (p past) GetAt(ctx context.Context, scope storage.Scope, key string, revision int64) (storage.Entry, error) {
	s, revision, err := p.at(ctx, revision)
	if err != nil {
		return storage.Entry{}, err
	}
	return s.GetAt(ctx, scope, key, revision)
}

// RangeAt implements storage.History.
func (p past) RangeAt(ctx context.Context, scope storage.Scope, r storage.RangeRequest) (storage.RangeResult, error) {
	asked := r.Revision
	s, revision, err := p.at(ctx, asked)
	if err != nil {
		return storage.RangeResult{}, err
	}
	r.Revision = revision
	result, err := s.RangeAt(ctx, scope, r)
	result.Revision = asked
	return result, err
}

// Versions implements storage.History.
func (p past) Versions(ctx context.Context, r storage.VersionsRequest) (list []storage.Change, more bool, err error) {
	s, err := p.now(ctx)
	if err != nil {
		return nil, false, err
	}
	return s.Versions(ctx, r)
}

// Changes implements storage.History.
func (p past) Changes(ctx context.Context, r storage.ChangesRequest) (storage.ChangesResult, error) {
	s, err := p.now(ctx)
	if err != nil {
		return storage.ChangesResult{}, err
	}
	return s.Changes(ctx, r)
}

// RevisionAt implements storage.History.
func (p past) RevisionAt(ctx context.Context, scope storage.Scope, t time.Time) (int64, error) {
	s, err := p.now(ctx)
	if err != nil {
		return 0, err
	}
	return s.RevisionAt(ctx, scope, t)
}

// WrittenAt implements storage.History.
func (p past) WrittenAt(ctx context.Context, revision int64) (time.Time, []byte, error) {
	s, _, err := p.at(ctx, revision)
	if err != nil {
		return time.Time{}, nil, err
	}
	return s.WrittenAt(ctx, revision)
}

// Kept implements storage.History.
func (p past) Kept() storage.Kept {
	s, err := p.m.store()
	if err != nil {
		return storage.Kept{}
	}
	return s.Kept()
}
