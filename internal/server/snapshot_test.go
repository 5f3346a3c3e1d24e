package server

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/snapshot"
)

// send sends body as JSON.
func send(t *testing.T, c *http.Client, method, url, body string) answer {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	w, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{w.StatusCode, w.Header, string(b)}
}

func configMap(name, value string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"v":"` + value + `"}}`
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func TestSnapshotOfARunningServer(t *testing.T) {
	s := start(t, testConfig(t))
	admin := httpClient(t, s, true)
	if a := send(t, admin, "POST", s.URL()+configMaps, configMap("kept", "1")); a.status != http.StatusCreated {
		t.Fatal(a)
	}
	a := call(t, admin, "GET", s.URL()+SnapshotPath)
	if a.status != http.StatusOK {
		t.Fatal(a)
	}
	found := false
	summary, err := backup.Verify(strings.NewReader(a.body), func(e snapshot.Entry) {
		found = found || e.Key == "/registry/configmaps/default/kept" && bytes.HasPrefix(e.Value, []byte("k8s\x00"))
	})
	if err != nil || !found || summary.Revision < 2 || summary.Entries < 5 {
		t.Errorf("%+v, found %v, %v", summary, found, err)
	}

	c := httpClient(t, s, false)
	for _, step := range []struct {
		method, path string
		headers      []string
		status       int
	}{
		{"GET", SnapshotPath, nil, 403},
		{"GET", SnapshotPath, []string{"Authorization", "Bearer davetoken"}, 403},
		{"GET", SnapshotPath, []string{"Authorization", "Bearer admintoken", "Impersonate-User", "jane"}, 403},
		{"POST", SnapshotPath, []string{"Authorization", "Bearer admintoken"}, 405},
		{"GET", SnapshotPath + "/", []string{"Authorization", "Bearer admintoken"}, 404},
	} {
		if a := call(t, c, step.method, s.URL()+step.path, step.headers...); a.status != step.status {
			t.Errorf("%s %s %v: %d %s, want %d", step.method, step.path, step.headers, a.status, a.body, step.status)
		}
	}
}

// TestSnapshotsAskForTheGroup: whatever authorization has let through.
func TestSnapshotsAskForTheGroup(t *testing.T) {
	for user, want := range map[*request.User]int{
		nil:                                      http.StatusForbidden,
		{Name: "a"}:                              http.StatusForbidden,
		{Groups: []string{"other"}}:              http.StatusForbidden,
		{Groups: []string{request.GroupMasters}}: http.StatusNotImplemented, // there is no store that could be had
	} {
		r := httptest.NewRequest("GET", SnapshotPath, nil)
		w := httptest.NewRecorder()
		newSnapshots(nil, nil).ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), user)))
		if w.Code != want {
			t.Errorf("%+v: %d, want %d", user, w.Code, want)
		}
	}
}
