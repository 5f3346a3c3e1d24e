package server

import (
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/console"
	"github.com/keelson-dev/keelson/internal/server/version"
)

// console reports whether the server has a console. Without anonymous requests nothing is answered that has no credentials.
func (c *settings) console() bool { return c.Serving.Console && !c.Authentication.NoAnonymous }

// ConsoleURL is where the console is, "" if the server has none.
func (s *Server) ConsoleURL() string {
	if !s.config.console() {
		return ""
	}
	return strings.TrimSuffix(s.URL(), "/") + console.Root
}

// newConsole returns the handler of the console.
func (s *starting) newConsole() *console.Handler {
	o := console.Options{Version: version.Keelson, Kubernetes: version.Kubernetes, Log: s.log, Now: time.Now}
	if set := s.authentication.issuers.set; set != nil {
		o.Issuers = func() (out []console.Issuer) {
			for _, l := range set.Logins() {
				out = append(out, console.Issuer(l))
			}
			return out
		}
	}
	return console.New(o)
}
