package server

import (
	"github.com/keelson-dev/keelson/internal/api/changes"
	"github.com/keelson-dev/keelson/internal/api/undelete"
)

// putPast adds the plans of undelete to the directory, and the feed of changes if the store keeps history.
// Discovery and OpenAPI have the feed only if --runtime-config names it: by default they have only what
// kube-apiserver has there.
func (s *starting) putPast() {
	plans := &undelete.Handler{Planner: s.api.planner(s.authorization, s.config), Changes: s.newFeed()}
	s.api.resources.Put(plans.Resource())
}

// newFeed adds the feed of changes to the directory and returns it, nil if the store keeps no history.
func (s *starting) newFeed() *changes.Handler {
	kept, ok := s.stores.Main.(changes.Store)
	if !ok {
		if s.versions.Named(changes.GVR) {
			s.log.Warn("the data is in a store that keeps no history: the version is not served", "version", changes.GVR.GroupVersion().String())
		}
		return nil
	}
	feed := changes.New(changes.Options{
		Resources: s.api.resources, Registry: s.api.registry, Store: kept, Authorizer: s.authorization, Now: s.config.Testing.Clock.Now,
		MinWatchTimeout: s.config.Requests.MinWatchTimeout,
	})
	r := changes.Resource(feed)
	r.Hidden = !s.versions.Named(changes.GVR)
	s.api.resources.Put(r)
	return feed
}
