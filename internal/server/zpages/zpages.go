// Package zpages serves the pages in which every component of a cluster describes itself (KEP-4827, KEP-4828).
package zpages

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// Paths of the pages.
const (
	StatuszPath = "/statusz"
	FlagszPath  = "/flagz"
)

// Options are the content of the pages.
type Options struct {
	Version apiversion.Info
	Started time.Time
	Now     func() time.Time
	Flags   map[string]string // the values of all flags by name
	// Statusz and Flagz enable the two pages.
	Statusz, Flagz bool
}

// Handler serves pages about the process and its start: as text, or as an object if the Accept header asks for that object.
type Handler struct {
	Options
	paths []string // of the pages that are served
}

// New returns a Handler.
func New(o Options) *Handler {
	z := &Handler{Options: o}
	if o.Statusz {
		z.paths = append(z.paths, StatuszPath)
	}
	if o.Flagz {
		z.paths = append(z.paths, FlagszPath)
	}
	return z
}

// Paths returns the paths of the pages that are served.
func (h *Handler) Paths() []string { return h.paths }

const (
	componentName = "apiserver"
	group         = "config.k8s.io"
	acceptable    = "only the following media types are accepted: application/json, application/yaml, text/plain"
	notice        = "Warning: This endpoint is not meant to be machine parseable, has no formatting " +
		"compatibility guarantees and is for debugging purposes only."
)

// versions are the versions of the objects; the first is deprecated.
var versions = []string{"v1alpha1", "v1beta1"}

// Serves reports whether the handler serves the page at a path.
func (h *Handler) Serves(path string) bool { return slices.Contains(h.paths, path) }

// page is a page in both formats.
type page struct {
	name, kind string
	text       func() string
	object     func(metav1.TypeMeta) any
}

func (h *Handler) page(path string) page {
	if path == FlagszPath {
		return page{"flagz", "Flagz", h.flagsText, h.flagsObject}
	}
	return page{"statusz", "Statusz", h.statusText, h.statusObject}
}

// ServeHTTP implements http.Handler. The path must be one that Serves accepts.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := h.page(r.URL.Path)
	clauses := apiresponse.ParseAccept(r.Header.Get("Accept"))
	for _, c := range clauses {
		media := c.Type + "/" + c.Subtype
		switch {
		case media == "text/plain" || media == "text/*" || media == "*/*":
			p.writeText(w)
			return
		case (media == apiresponse.JSON || media == apiresponse.YAML) && p.isRequested(c.Params):
			if c.Params["v"] == versions[0] {
				request.Warn(r.Context(), "This version of the "+p.name+" endpoint is deprecated. Please use a newer version.")
			}
			if err := p.writeObject(w, media, c.Params["v"]); err != nil {
				apiresponse.Error(w, r, err)
			}
			return
		}
	}
	apiresponse.Error(w, r, apierr.NotAcceptable(acceptable))
}

// isRequested reports whether the parameters of a media type name the object of the page.
func (p page) isRequested(params map[string]string) bool {
	return params["g"] == group && params["as"] == p.kind && slices.Contains(versions, params["v"])
}

func (p page) writeText(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintf(w, "\n%s %s\n%s\n%s", componentName, p.name, notice, p.text()) // the client may be gone
}

func (p page) writeObject(w http.ResponseWriter, mediaType, version string) error {
	body, err := scheme.Marshal(p.object(metav1.TypeMeta{Kind: p.kind, APIVersion: group + "/" + version}))
	if err == nil {
		if mediaType == apiresponse.YAML {
			body, err = yaml.JSONToYAML(body)
		} else {
			body = apiresponse.Indent(body)
		}
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", fmt.Sprintf("%s;g=%s;v=%s;as=%s", mediaType, group, version, p.kind))
	_, _ = w.Write(body) // the client may be gone
	return nil
}

// statusPaths returns the sorted paths of the status pages of the server.
func (h *Handler) statusPaths() []string {
	paths := append([]string{"/healthz", "/livez", "/metrics", "/readyz", "/version"}, h.paths...)
	slices.Sort(paths)
	return paths
}

func (h *Handler) statusText() string {
	v, up := h.Version, h.Now().Sub(h.Started)
	return fmt.Sprintf("\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\nEmulation "+
		"version: %s.%s\nPaths: %s\n",
		h.Started.UTC().Format(time.UnixDate), int(up.Hours()), int(up.Minutes())%60, int(up.Seconds())%60,
		v.GoVersion, binaryVersion(v.GitVersion), v.EmulationMajor, v.EmulationMinor, strings.Join(h.statusPaths(), " "))
}

// binaryVersion returns a version without the leading v, and without any text after the three numbers.
func binaryVersion(v string) string {
	v, _, _ = strings.Cut(strings.TrimPrefix(v, "v"), "+")
	v, _, _ = strings.Cut(v, "-")
	return v
}

func (h *Handler) statusObject(t metav1.TypeMeta) any {
	v := h.Version
	return struct {
		metav1.TypeMeta  `json:",inline"`
		Metadata         objectMeta `json:"metadata"`
		StartTime        string     `json:"startTime"`
		UptimeSeconds    int64      `json:"uptimeSeconds"`
		GoVersion        string     `json:"goVersion"`
		BinaryVersion    string     `json:"binaryVersion"`
		EmulationVersion string     `json:"emulationVersion,omitempty"`
		Paths            []string   `json:"paths,omitempty"`
	}{
		t, objectMeta{componentName}, h.Started.UTC().Format(time.RFC3339), int64(h.Now().Sub(h.Started).Seconds()),
		v.GoVersion, binaryVersion(v.GitVersion), v.EmulationMajor + "." + v.EmulationMinor, h.statusPaths(),
	}
}

// objectMeta is the metadata of the objects, which are not API resources.
type objectMeta struct {
	Name string `json:"name"`
}

func (h *Handler) flagsText() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h.Flags)) {
		fmt.Fprintf(&b, "%s %s\n", name, h.Flags[name])
	}
	return b.String()
}

func (h *Handler) flagsObject(t metav1.TypeMeta) any {
	return struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        objectMeta        `json:"metadata"`
		Flags           map[string]string `json:"flags,omitempty"`
	}{t, objectMeta{componentName}, h.Flags}
}
