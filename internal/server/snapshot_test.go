package server

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/snapshot"
)

func configMap(name, value string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"v":"` + value + `"}}`
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func TestSnapshotOfARunningServer(t *testing.T) {
	s := start(t, testConfig(t))
	admin := httpClient(t, s, true)
	if a := apitest.Send(t, admin, "POST", s.URL()+configMaps, configMap("kept", "1")); a.Status != http.StatusCreated {
		t.Fatal(a)
	}
	a := apitest.Send(t, admin, "GET", s.URL()+SnapshotPath, "")
	if a.Status != http.StatusOK {
		t.Fatal(a)
	}
	found := false
	summary, err := backup.Verify(strings.NewReader(a.Body), func(e snapshot.Entry) {
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
		if a := apitest.Send(t, c, step.method, s.URL()+step.path, "", step.headers...); a.Status != step.status {
			t.Errorf("%s %s %v: %d %s, want %d", step.method, step.path, step.headers, a.Status, a.Body, step.status)
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
