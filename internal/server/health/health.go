// Package health serves /healthz, /livez and /readyz. Each endpoint is a list of named checks, and each check has a
// path of its own below the endpoint.
package health

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sort"
	"strings"
)

// Endpoint is a set of endpoints.
type Endpoint int

// The endpoints. Healthz is the older name of Livez.
const (
	Livez Endpoint = 1 << iota
	Readyz
	Healthz

	Everywhere = Livez | Readyz | Healthz
)

// Check is one named check. Probe is called in each request; it must be cheap and return before the context ends.
type Check struct {
	Name string
	// Group is a second name, or "". If it is excluded, all checks of the group are excluded.
	Group string
	On    Endpoint
	Probe func(context.Context) error
}

// Observer is called with the result of each check.
type Observer func(name, endpoint string, ok bool)

// Handler serves the three endpoints.
type Handler struct {
	checks  []Check
	log     *slog.Logger
	observe Observer
	// LivezPasses reports whether the server may still be starting. While it returns true, /livez succeeds without
	// running checks. It may be nil.
	LivezPasses func() bool
	// Warnings describe problems that do not make a check fail, "" if there is none. Everybody may read them.
	Warnings []func() string
	// Remarks are shown with the checks, unless they are "". Everybody may read them.
	Remarks []func() string
}

// New returns a handler. Its responses list the checks in the given order.
func New(checks []Check, log *slog.Logger, observe Observer) *Handler {
	return &Handler{checks: checks, log: log, observe: observe}
}

var endpoints = map[string]Endpoint{"healthz": Healthz, "livez": Livez, "readyz": Readyz}

// Serves reports whether a path belongs to Handler.
func Serves(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return endpoints[first] != 0
}

// Paths returns all paths of the handler, sorted.
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

// ServeHTTP runs all checks of an endpoint, or the one in the path.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	endpoint, name, single := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if single {
		h.serveCheck(w, r, endpoint, name)
		return
	}
	h.serveEndpoint(w, r, endpoint)
}

// serveCheck runs one check of an endpoint.
func (h *Handler) serveCheck(w http.ResponseWriter, r *http.Request, endpoint, name string) {
	for _, c := range h.checks {
		if c.Name != name || c.On&endpoints[endpoint] == 0 {
			continue
		}
		if err := h.run(r.Context(), c, endpoint); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		writeText(w, http.StatusOK, "ok")
		return
	}
	http.Error(w, "404 page not found", http.StatusNotFound)
}

// serveEndpoint runs all checks of an endpoint that are not excluded.
func (h *Handler) serveEndpoint(w http.ResponseWriter, r *http.Request, endpoint string) {
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
			// The reason is withheld, because anonymous users may read this response.
			fmt.Fprintf(&out, "[-]%s failed: reason withheld\n", c.Name)
			failed = append(failed, c.Name)
			continue
		}
		fmt.Fprintf(&out, "[+]%s ok\n", c.Name)
	}
	if len(unknown) > 0 {
		fmt.Fprintf(&out, "warn: some health checks cannot be excluded: no matches for %s\n", quotedNames(unknown))
	}
	for _, warning := range h.Warnings {
		if text := warning(); text != "" {
			fmt.Fprintf(&out, "warn: %s\n", text)
		}
	}
	for _, remark := range h.Remarks {
		if text := remark(); text != "" {
			fmt.Fprintf(&out, "%s\n", text)
		}
	}
	if failed != nil {
		h.log.Info("health check failed", "endpoint", endpoint, "checks", strings.Join(failed, ","))
		http.Error(w, out.String()+endpoint+" check failed", http.StatusInternalServerError)
		return
	}
	if _, verbose := query["verbose"]; !verbose {
		writeText(w, http.StatusOK, "ok")
		return
	}
	writeText(w, http.StatusOK, out.String()+endpoint+" check passed\n")
}

// run runs a check and reports the result to the observer.
func (h *Handler) run(ctx context.Context, c Check, endpoint string) error {
	if endpoint == "livez" && h.LivezPasses != nil && h.LivezPasses() {
		return nil
	}
	err := c.Probe(ctx)
	h.observe(c.Name, endpoint, err == nil)
	return err
}

// Alive returns the error with which /livez would fail. Checks with an excluded name or group are not run.
func (h *Handler) Alive(ctx context.Context, excluded ...string) error {
	return h.failure(ctx, "livez", excluded)
}

// Ready returns the error with which /readyz would fail.
func (h *Handler) Ready(ctx context.Context) error { return h.failure(ctx, "readyz", nil) }

func (h *Handler) failure(ctx context.Context, endpoint string, excluded []string) error {
	for _, c := range h.checks {
		if c.On&endpoints[endpoint] == 0 || slices.Contains(excluded, c.Name) || c.Group != "" && slices.Contains(excluded, c.Group) {
			continue
		}
		if err := h.run(ctx, c, endpoint); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

func quotedNames(names map[string]bool) string {
	out := make([]string, 0, len(names))
	for name := range names {
		out = append(out, fmt.Sprintf("%q", name))
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}

func writeText(w http.ResponseWriter, status int, body string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // the client may be gone
}
