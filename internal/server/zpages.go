package server

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

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// Paths of the pages that every component of a cluster has about itself
// (KEP-4827, KEP-4828).
const (
	statuszPath = "/statusz"
	flagszPath  = "/flagz"
)

// zpages serves pages about the process and its start: as text, or as an object if the Accept header asks for that
// object.
type zpages struct {
	version apiversion.Info
	started time.Time
	now     func() time.Time
	flags   map[string]string
	paths   []string // of the pages that are served
}

// zpagePaths returns the paths of the pages that are served.
func zpagePaths(gates features.Gates) (paths []string) {
	if gates.Enabled(features.ComponentStatusz) {
		paths = append(paths, statuszPath)
	}
	if gates.Enabled(features.ComponentFlagz) {
		paths = append(paths, flagszPath)
	}
	return paths
}

const (
	componentName    = "apiserver"
	zpagesGroup      = "config.k8s.io"
	zpagesAcceptable = "only the following media types are accepted: application/json, application/yaml, text/plain"
	zpagesNotice     = "Warning: This endpoint is not meant to be machine parseable, has no formatting " +
		"compatibility guarantees and is for debugging purposes only."
)

// zpageVersions are the versions of the objects; the first is deprecated.
var zpageVersions = []string{"v1alpha1", "v1beta1"}

func (z *zpages) serves(path string) bool { return slices.Contains(z.paths, path) }

// zpage is a page in both formats.
type zpage struct {
	name, kind string
	text       func() string
	object     func(metav1.TypeMeta) any
}

func (z *zpages) page(path string) zpage {
	if path == flagszPath {
		return zpage{"flagz", "Flagz", z.flagsText, z.flagsObject}
	}
	return zpage{"statusz", "Statusz", z.statusText, z.statusObject}
}

func (z *zpages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := z.page(r.URL.Path)
	clauses := apiresponse.ParseAccept(r.Header.Get("Accept"))
	for _, c := range clauses {
		media := c.Type + "/" + c.Subtype
		switch {
		case media == "text/plain" || media == "text/*" || media == "*/*":
			p.writeText(w)
			return
		case (media == apiresponse.JSON || media == apiresponse.YAML) && p.isRequested(c.Params):
			if c.Params["v"] == zpageVersions[0] {
				request.Warn(r.Context(), "This version of the "+p.name+" endpoint is deprecated. Please use a newer version.")
			}
			if err := p.writeObject(w, media, c.Params["v"]); err != nil {
				apiresponse.Error(w, r, err)
			}
			return
		}
	}
	apiresponse.Error(w, r, apierr.NotAcceptable(zpagesAcceptable))
}

// isRequested reports whether the parameters of a media type name the object of the page.
func (p zpage) isRequested(params map[string]string) bool {
	return params["g"] == zpagesGroup && params["as"] == p.kind && slices.Contains(zpageVersions, params["v"])
}

func (p zpage) writeText(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintf(w, "\n%s %s\n%s\n%s", componentName, p.name, zpagesNotice, p.text()) // the client may be gone
}

func (p zpage) writeObject(w http.ResponseWriter, mediaType, version string) error {
	body, err := scheme.Marshal(p.object(metav1.TypeMeta{Kind: p.kind, APIVersion: zpagesGroup + "/" + version}))
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
	w.Header().Set("Content-Type", fmt.Sprintf("%s;g=%s;v=%s;as=%s", mediaType, zpagesGroup, version, p.kind))
	_, _ = w.Write(body) // the client may be gone
	return nil
}

// statusPaths returns the paths of the pages that components have.
func (z *zpages) statusPaths() []string {
	paths := append([]string{"/healthz", "/livez", "/metrics", "/readyz", "/version"}, z.paths...)
	slices.Sort(paths)
	return paths
}

func (z *zpages) statusText() string {
	v, up := z.version, z.now().Sub(z.started)
	return fmt.Sprintf("\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\nEmulation "+
		"version: %s.%s\nPaths: %s\n",
		z.started.UTC().Format(time.UnixDate), int(up.Hours()), int(up.Minutes())%60, int(up.Seconds())%60,
		v.GoVersion, binaryVersion(v.GitVersion), v.EmulationMajor, v.EmulationMinor, strings.Join(z.statusPaths(), " "))
}

// binaryVersion is a version without the v before it and what comes after the three
// numbers.
func binaryVersion(v string) string {
	v, _, _ = strings.Cut(strings.TrimPrefix(v, "v"), "+")
	v, _, _ = strings.Cut(v, "-")
	return v
}

func (z *zpages) statusObject(t metav1.TypeMeta) any {
	v := z.version
	return struct {
		metav1.TypeMeta  `json:",inline"`
		Metadata         zpageMeta `json:"metadata"`
		StartTime        string    `json:"startTime"`
		UptimeSeconds    int64     `json:"uptimeSeconds"`
		GoVersion        string    `json:"goVersion"`
		BinaryVersion    string    `json:"binaryVersion"`
		EmulationVersion string    `json:"emulationVersion,omitempty"`
		Paths            []string  `json:"paths,omitempty"`
	}{
		t, zpageMeta{componentName}, z.started.UTC().Format(time.RFC3339), int64(z.now().Sub(z.started).Seconds()),
		v.GoVersion, binaryVersion(v.GitVersion), v.EmulationMajor + "." + v.EmulationMinor, z.statusPaths(),
	}
}

// zpageMeta is the metadata of the objects, which are not API resources.
type zpageMeta struct {
	Name string `json:"name"`
}

func (z *zpages) flagsText() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(z.flags)) {
		fmt.Fprintf(&b, "%s %s\n", name, z.flags[name])
	}
	return b.String()
}

func (z *zpages) flagsObject(t metav1.TypeMeta) any {
	return struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        zpageMeta         `json:"metadata"`
		Flags           map[string]string `json:"flags,omitempty"`
	}{t, zpageMeta{componentName}, z.flags}
}
