package requestlog

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/gateway/filter/requestinfo"
)

func logged(level slog.Level, url string) string {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))
	h := requestinfo.New()(New(
		log)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })))
	r := httptest.NewRequest("GET", url, nil)
	r.Header.Set("User-Agent", "kubectl")
	r.Header.Set("Audit-Id", strings.Repeat("i", 100))
	r.Header.Set("Authorization", "Bearer CREDENTIAL")
	h.ServeHTTP(httptest.NewRecorder(), r)
	return out.String()
}

func TestRequestsAreLogged(t *testing.T) {
	line := logged(Level, "/api/v1/pods?limit=1")
	for _, want := range []string{"msg=HTTP", "verb=LIST", `URI="/api/v1/pods?limit=1"`, "userAgent=kubectl",
		"audit-ID=" + strings.Repeat("i", 64) + " ", "srcIP=192.0.2.1:1234", "resp=418", "latency="} {
		if !strings.Contains(line, want) {
			t.Errorf("%s: without %s", line, want)
		}
	}
	if line := logged(slog.LevelInfo, "/api/v1/pods"); line != "" {
		t.Errorf("without being asked: %s", line)
	}
}

func TestCredentialsAreNotLogged(t *testing.T) {
	for _, url := range []string{"/api?access_token=CREDENTIAL&x=1", "/api?x=1&token=CREDENTIAL",
		"/api?x=1&%74oken=CREDENTIAL", "/api?x=1&access%5ftoken=CREDENTIAL",
		"/api?x=1&token=a&token=CREDENTIAL", "/api?x=1;token=CREDENTIAL&x=1", "/api?x=1&Token=CREDENTIAL",
		"/api?x=1&tok%65n=CREDENTIAL%zz"} {
		if line := logged(Level, url); strings.Contains(line, "CREDENTIAL") || !strings.Contains(line, "x=1") {
			t.Errorf("%s", line)
		}
	}
}
