package server

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/controller/bootstrap"
	"github.com/keelson-dev/keelson/controller/serviceaccount"
	"github.com/keelson-dev/keelson/metrics"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource"
	"github.com/keelson-dev/keelson/rest"
	"github.com/keelson-dev/keelson/server/background"
	"github.com/keelson-dev/keelson/server/features"
)

// api is what serves resources: the kinds, the cache on the store, the generic
// pipeline and the verbs.
type api struct {
	kinds    []*registry.Kind
	caches   []*cache.Cache
	registry *registry.Registry
	handler  *rest.Handler
	custom   *custom
	ready    chan struct{} // closed when the system namespaces are there
}

// idleDrop is how long a resource that nobody reads stays in memory.
const idleDrop = 30 * time.Minute

func (s *Server) buildAPI(ctx context.Context) error {
	a := &api{kinds: resource.Kinds(), ready: make(chan struct{})}
	s.api = a
	histories := cache.NewHistories(0)
	for i := range s.places {
		p := &s.places[i]
		p.cache = cache.New(cache.Options{
			Store: p.store, FormBudget: p.formBudget, IdleDrop: idleDrop, Histories: histories, Logger: s.log,
		})
		a.caches = append(a.caches, p.cache)
	}
	var err error
	if a.registry, err = registry.NewPlaced(a.kinds, s.backend, time.Now); err != nil {
		return err
	}
	if s.encryption != nil {
		a.registry.Transform(s.transformer)
		s.encryption.OnReload(func() {
			for _, c := range a.caches {
				c.RetryUnread()
			}
		})
	}
	if err := s.buildAuthentication(ctx, a.registry); err != nil {
		return err
	}
	if err := s.buildAuthorization(); err != nil {
		return err
	}
	options := rest.Options{
		Registry:          a.registry,
		Admission:         admissionChain(a.registry, s.authorization, append(s.config.judges, s.authorization.guardRoles())...),
		MinRequestTimeout: s.config.MinRequestTimeout,
		WatchCounter: func(group, version, resource string) rest.WatchCounter {
			return s.metrics.WatchEvents(group, version, resource)
		},
		Computed: map[schema.GroupResource]rest.Computed{{Resource: "componentstatuses"}: s.componentStatuses},
		CBOR:     s.gates.Enabled(features.CBORServingAndStorage),
	}
	s.serveAuthorization(&options)
	s.serveAuthentication(&options)
	verbs := rest.New(options)
	a.handler = verbs
	if a.custom, err = s.buildCustom(a.registry, verbs); err != nil {
		return err
	}
	s.work.Go("custom resource definitions", background.Forever(a.custom.Run))
	if err := s.allocateServices(ctx, a.registry); err != nil {
		return err
	}
	if err := bootstrap.Namespaces(ctx, a.registry, verbs); err != nil {
		return err
	}
	close(a.ready)
	if err := both(
		func() error { return s.startAuthorization(ctx, a.registry, verbs) },
		func() error { return s.startControlPlane(ctx, a.registry, verbs) },
	); err != nil {
		return err
	}
	if err := s.startAPIServices(ctx, verbs); err != nil {
		return err
	}
	s.work.Go("objects of the control plane", background.Forever(s.controlPlane.keeper.Run))
	s.work.Go("addresses and ports of services", background.Forever(s.claims.Run))
	if s.config.DefaultServiceAccounts {
		accounts := &serviceaccount.Controller{Registry: a.registry, Creator: verbs, Log: s.log}
		s.work.Go("default service accounts", background.Forever(accounts.Run))
	}
	return nil
}

// both does two things at the same time.
func both(a, b func() error) error {
	done := make(chan error, 1)
	go func() { done <- b() }()
	return errors.Join(a(), <-done)
}

// bootstrapped waits until the objects that every server starts with are there.
func (a *api) bootstrapped(ctx context.Context) error {
	select {
	case <-a.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// objects counts the stored objects of the resources that are in use.
func (a *api) objects() map[metrics.GroupResource]int64 {
	counts := map[metrics.GroupResource]int64{}
	for _, r := range a.registry.Resources() {
		if n, ok := r.Counted(); ok {
			counts[metrics.GroupResource{Group: r.Kind.Group, Resource: r.Kind.Resource}] = int64(n)
		}
	}
	a.custom.Objects(func(group, resource string, n int) {
		counts[metrics.GroupResource{Group: group, Resource: resource}] = int64(n)
	})
	return counts
}

func (a *api) close() error {
	for _, c := range a.caches {
		c.Close()
	}
	return nil
}
