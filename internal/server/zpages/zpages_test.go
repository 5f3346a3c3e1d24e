package zpages

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	apiversion "k8s.io/apimachinery/pkg/version"
)

func TestPages(t *testing.T) {
	started := time.Unix(1e9, 0)
	h := New(Options{
		Version: apiversion.Info{GitVersion: "v1.37.2+x", GoVersion: "go1", EmulationMajor: "1", EmulationMinor: "36"},
		Started: started, Now: func() time.Time { return started.Add(3723 * time.Second) },
		Flags: map[string]string{"v": "2", "a": "b"}, Statusz: true, Flagz: true,
	})
	const object = "application/json;g=config.k8s.io;v=v1beta1;as="
	for _, c := range []struct {
		path, accept string
		status       int
		parts        []string
	}{
		{StatuszPath, "", 200, []string{"apiserver statusz", "Up: 1 hr 02 min 03 sec", "Binary version: 1.37.2\n", "Emulation version: 1.36"}},
		{FlagszPath, "text/*", 200, []string{"apiserver flagz", "\na b\nv 2\n"}},
		{StatuszPath, object + "Statusz", 200, []string{`"uptimeSeconds": 3723`, `"emulationVersion": "1.36"`, `"/flagz"`}},
		{FlagszPath, object + "Flagz", 200, []string{`"kind": "Flagz"`, `"a": "b"`}},
		{FlagszPath, object + "Statusz", 406, []string{"only the following media types are accepted"}},
	} {
		r, w := httptest.NewRequest("GET", c.path, nil), httptest.NewRecorder()
		if c.accept != "" {
			r.Header.Set("Accept", c.accept)
		}
		h.ServeHTTP(w, r)
		for _, part := range c.parts {
			if w.Code != c.status || !strings.Contains(w.Body.String(), part) {
				t.Errorf("%s %q: %d %s, want %d and %q", c.path, c.accept, w.Code, w.Body, c.status, part)
			}
		}
	}
	if h := New(Options{Flagz: true}); h.Serves(StatuszPath) || !slices.Equal(h.Paths(), []string{FlagszPath}) {
		t.Errorf("with one page: %q", h.Paths())
	}
}
