// Package rig serves the verbs of the API over any store inside a test. It also has the client of the tests that
// record histories: from each response the client concludes what the request can have changed, and records it.
package rig

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/rest"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Options configure a Server.
type Options struct {
	Store storage.Store
	// Cache has the configuration of the cache; its Store is not used.
	Cache cache.Options
	// Around may wrap the handler of the verbs.
	Around func(http.Handler) http.Handler
}

// Server serves the verbs on a port, without authentication and admission.
type Server struct {
	URL   string
	http  *httptest.Server
	cache *cache.Cache
}

// Serve starts a server. The caller has to close the store.
func Serve(o Options) (*Server, error) {
	o.Cache.Store, o.Cache.Logger = o.Store, slog.New(slog.DiscardHandler)
	c := cache.New(o.Cache)
	reg, err := registry.New(resource.Kinds(features.Gates{}), o.Store, c, time.Now)
	if err != nil {
		c.Close()
		return nil, err
	}
	verbs := directory.New()
	verbs.PutBuiltIn(reg, rest.New(rest.Options{Registry: reg}).BuiltIn)
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := request.WithInfo(r.Context(), request.ParseInfo(r))
		ctx = request.WithUser(
			ctx, &request.User{Name: "admin", Groups: []string{request.GroupMasters, request.GroupAuthenticated}},
		)
		verbs.ServeHTTP(w, r.WithContext(ctx))
	})
	if o.Around != nil {
		h = o.Around(h)
	}
	s := &Server{http: httptest.NewServer(h), cache: c}
	s.URL = s.http.URL
	return s, nil
}

// Close closes all connections and ends the server.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.cache.Close()
	s.http.Close()
}
