// Package health answers /healthz, /livez and /readyz: each is a list of named
// checks, and each check has a path of its own below them.
package health

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sort"
	"strings"
)

// Endpoint is a set of the paths that a check belongs to.
type Endpoint int

// The endpoints: healthz is livez under its old name.
const (
	Livez Endpoint = 1 << iota
	Readyz
	Healthz

	Everywhere = Livez | Readyz | Healthz
)

// Check is one named condition. Probe is called with each request; it must be
// cheap and return within the context's time.
type Check struct {
	Name string
	// Group is a further name: excluding it excludes all checks of the group. It may be "".
	Group string
	On    Endpoint
	Probe func(context.Context) error
}

// Observer is called with each result.
type Observer func(name, endpoint string, ok bool)

// Handler serves the three endpoints.
type Handler struct {
	checks  []Check
	log     *slog.Logger
	observe Observer
	// LivezPasses returns whether the server may still be starting: as long as it does,
	// /livez passes without asking the checks. nil never does.
	LivezPasses func() bool
}

// New returns a handler; the order of the checks is that of its answers.
func New(checks []Check, log *slog.Logger, observe Observer) *Handler {
	return &Handler{checks: checks, log: log, observe: observe}
}

var endpoints = map[string]Endpoint{"healthz": Healthz, "livez": Livez, "readyz": Readyz}

// Serves says whether the path belongs to the handler.
func Serves(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return endpoints[first] != 0
}

// Paths lists every path that is served.
func (h *Handler) Paths() []string {
	var out []string
	for name, e := range endpoints {
		out = append(out, "/"+name)
		for _, c := range h.checks {
			if c.On&e != 0 {
				out = append(out, "/"+name+"/"+c.Name)
			}
		}
	}
	sort.Strings(out)
	return out
}

// ServeHTTP runs all checks of an endpoint, or the one that the path names.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	endpoint, name, single := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if single {
		h.serveOne(w, r, endpoint, name)
		return
	}
	h.serveAll(w, r, endpoint)
}

func (h *Handler) serveOne(w http.ResponseWriter, r *http.Request, endpoint, name string) {
	for _, c := range h.checks {
		if c.Name != name || c.On&endpoints[endpoint] == 0 {
			continue
		}
		if err := h.run(r.Context(), c, endpoint); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		text(w, http.StatusOK, "ok")
		return
	}
	http.Error(w, "404 page not found", http.StatusNotFound)
}

func (h *Handler) serveAll(w http.ResponseWriter, r *http.Request, endpoint string) {
	query := r.URL.Query()
	excluded, unknown := map[string]bool{}, map[string]bool{}
	for _, name := range query["exclude"] {
		excluded[name], unknown[name] = true, true
	}
	var out bytes.Buffer
	var failed []string
	for _, c := range h.checks {
		if c.On&endpoints[endpoint] == 0 {
			continue
		}
		if excluded[c.Name] {
			delete(unknown, c.Name)
			fmt.Fprintf(&out, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		if c.Group != "" && excluded[c.Group] {
			delete(unknown, c.Group)
			fmt.Fprintf(&out, "[+]%s excluded with %s: ok\n", c.Name, c.Group)
			continue
		}
		if err := h.run(r.Context(), c, endpoint); err != nil {
			// The reason may tell more than an anonymous reader should know.
			fmt.Fprintf(&out, "[-]%s failed: reason withheld\n", c.Name)
			failed = append(failed, c.Name)
			continue
		}
		fmt.Fprintf(&out, "[+]%s ok\n", c.Name)
	}
	if len(unknown) > 0 {
		fmt.Fprintf(&out, "warn: some health checks cannot be excluded: no matches for %s\n", quoted(unknown))
	}
	if failed != nil {
		h.log.Info("health check failed", "endpoint", endpoint, "checks", strings.Join(failed, ","))
		http.Error(w, out.String()+endpoint+" check failed", http.StatusInternalServerError)
		return
	}
	if _, verbose := query["verbose"]; !verbose {
		text(w, http.StatusOK, "ok")
		return
	}
	text(w, http.StatusOK, out.String()+endpoint+" check passed\n")
}

func (h *Handler) run(ctx context.Context, c Check, endpoint string) error {
	if endpoint == "livez" && h.LivezPasses != nil && h.LivezPasses() {
		return nil
	}
	err := c.Probe(ctx)
	h.observe(c.Name, endpoint, err == nil)
	return err
}

func quoted(names map[string]bool) string {
	out := make([]string, 0, len(names))
	for name := range names {
		out = append(out, fmt.Sprintf("%q", name))
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}

func text(w http.ResponseWriter, status int, body string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // the client may be gone
}
