package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/console"
	"github.com/keelson-dev/keelson/internal/gateway/filter/unauthenticated"
	"github.com/keelson-dev/keelson/internal/server/frontpage"
	"github.com/keelson-dev/keelson/internal/server/members"
	"github.com/keelson-dev/keelson/internal/server/version"
)

// hasConsole reports whether the console is configured and its path allows requests without credentials. Browsers
// send no credentials when they load the console.
func (s *Server) hasConsole() bool {
	return s.config.Serving.Console && s.authentication.Anonymous.Allows(console.Root)
}

// unauthenticated returns the filter that serves the pages without credentials. It returns nil if there are no
// such pages.
func (s *starting) unauthenticated(ready func(context.Context) error) func(http.Handler) http.Handler {
	pages := []unauthenticated.Page{{
		Path: frontpage.Path, Serves: frontpage.Wanted, Handler: frontpage.New(frontpage.Page{
			Version: version.Keelson, Kubernetes: version.Kubernetes, Kubeconfig: s.identity.Path, Ready: ready, Console: s.hasConsole(),
		}),
	}}
	if s.config.Serving.Console {
		pages = append(pages, unauthenticated.Page{
			Path: console.Root, Serves: func(r *http.Request) bool { return console.Serves(r.URL.Path) }, Handler: s.newConsole(),
		})
	}
	allows := s.authentication.Anonymous.Allows
	if s.stores.Members != nil {
		pages = append(pages, unauthenticated.Page{
			Path: members.JoinPath, Serves: members.ServesJoin, Handler: s.stores.Members.Open(),
		})
		allows = func(path string) bool { return path == members.JoinPath || s.authentication.Anonymous.Allows(path) }
	}
	return unauthenticated.New(unauthenticated.Options{
		Pages: pages, Allows: allows, Refused: unauthenticated.NewMetrics(s.metrics),
	})
}

// ConsoleURL returns the URL of the console, "" if the server has none.
func (s *Server) ConsoleURL() string {
	if !s.hasConsole() {
		return ""
	}
	return strings.TrimSuffix(s.URL(), "/") + console.Root
}

func (s *starting) newConsole() *console.Handler {
	o := console.Options{Version: version.Keelson, Kubernetes: version.Kubernetes, Log: s.log, Now: time.Now}
	if set := s.authentication.Issuers(); set != nil {
		o.Issuers = func() (out []console.Issuer) {
			for _, l := range set.Logins() {
				out = append(out, console.Issuer(l))
			}
			return out
		}
	}
	return console.New(o)
}
