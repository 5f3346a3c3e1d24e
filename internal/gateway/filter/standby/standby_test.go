package standby

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/gateway/filter/requestinfo"
)

// TestOnlyReads checks which requests a standby answers, and that answers about resources are marked.
func TestOnlyReads(t *testing.T) {
	state := State{Age: 2300 * time.Millisecond, Revision: 7, Server: "other:6443"}
	h := requestinfo.New()(New(func() State { return state })(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})))
	const marked, unmarked = true, false
	for _, c := range []struct {
		request string
		code    int
		marked  bool
	}{
		{"GET /api/v1/namespaces/a/pods/x", 200, marked},
		{"GET /apis/example.com/v1/things?watch=1", 200, marked},
		{"GET /api/v1/namespaces/a/pods/x/status", 200, marked},
		{"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 200, marked},
		{"POST /apis/authentication.k8s.io/v1/tokenreviews", 200, marked},
		{"POST /api/v1/namespaces/a/pods", 503, marked},
		{"POST /api/v1/namespaces/a/serviceaccounts/x/token", 503, marked},
		{"PUT /api/v1/namespaces/a/pods/x", 503, marked},
		{"PATCH /api/v1/namespaces/a/pods/x", 503, marked},
		{"DELETE /api/v1/namespaces/a/pods", 503, marked},
		{"GET /api/v1/namespaces/a/pods/x/exec", 503, marked},
		{"GET /api/v1/namespaces/a/pods/x/log", 503, marked},
		{"GET /api/v1/nodes/n/proxy/metrics", 503, marked},
		{"GET /api", 200, unmarked},
		{"GET /metrics", 200, unmarked},
		{"PUT /debug/flags/v", 200, unmarked},
		{"POST /keelson/snapshot", 503, unmarked},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != c.code {
			t.Errorf("%s: %d, want %d", c.request, w.Code, c.code)
		}
		if w.Code == 503 && (w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "lock of the copy: other:6443")) {
			t.Errorf("%s: %v %s", c.request, w.Header(), w.Body)
		}
		if seconds := w.Header().Get(SecondsHeader); (seconds == "2.3") != c.marked {
			t.Errorf("%s: %s is %q", c.request, SecondsHeader, seconds)
		}
		warning := w.Header().Get("Warning")
		if (warning == `299 - "this server is a standby: this answer is 3 seconds old"`) != c.marked {
			t.Errorf("%s: the warning is %q", c.request, warning)
		}
	}
	if New(nil) != nil {
		t.Error("there is a filter without a standby")
	}
}
