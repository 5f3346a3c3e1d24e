package server

import (
	"context"
	"net/http"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/metrics"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/respond"
)

// api is what serves resources.
type api struct {
	kinds   []*registry.Kind
	handler http.Handler
}

func (s *Server) buildAPI(context.Context) error {
	s.api = &api{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		respond.Error(w, r, apierr.PathNotFound())
	})}
	return nil
}

func (a *api) bootstrapped(context.Context) error { return nil }

func (a *api) objects() map[metrics.GroupResource]int64 { return nil }

func (a *api) close() error { return nil }
