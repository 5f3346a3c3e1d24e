package server_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/api/undelete"
	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/server/servertest"
)

// TestStartCopied checks that a server on a copy changes nothing in it and plans what is missing elsewhere.
func TestStartCopied(t *testing.T) {
	c := servertest.Default()
	c.Storage.Backend, c.Storage.DataDir = config.StorageEmbedded, t.TempDir()
	s := servertest.Start(t, c)
	const maps = "/api/v1/namespaces/default/configmaps"
	s.Create(maps, `{"metadata":{"name":"a"},"data":{"v":"1"}}`)
	s.Create(maps, `{"metadata":{"name":"b"}}`)
	last := s.Metadata(maps + "/b").ResourceVersion
	s.Do(http.MethodDelete, maps+"/b", "")
	servertest.Stop(t, s.Server)

	asked := 0
	copied, err := server.StartCopied(t.Context(), server.Copied{
		Dir: filepath.Join(c.Storage.DataDir, "store"), Elsewhere: func(
			_ context.Context, gvr schema.GroupVersionResource, namespace, name string,
		) (*unstructured.Unstructured, error) {
			asked++
			if gvr.String() != "/v1, Resource=configmaps" || namespace != "default" {
				t.Errorf("it asks for %v %s", gvr, namespace)
			}
			if name == "b" {
				return nil, nil
			}
			return &unstructured.Unstructured{Object: map[string]any{}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer servertest.Stop(t, copied)
	client := copied.Client()
	defer client.CloseIdleConnections()
	send := func(method, path, body string) (int, string) {
		q, err := http.NewRequestWithContext(t.Context(), method, copied.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Authorization", "Bearer "+copied.AdminToken())
		r, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		answer, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(answer)
	}
	if status, body := send(http.MethodPost, maps, `{"metadata":{"name":"c"}}`); status < 400 || !strings.Contains(body, "a copy is only read") {
		t.Errorf("a create: %d %s", status, body)
	}
	for _, w := range []struct{ path, skip, name string }{
		{maps + "/a/undelete", undelete.Exists, "a"},
		{maps + "/b/undelete", "", "b"},
		{maps + "/b/undelete?asOf=" + last, "", "b"},
	} {
		status, body := send(http.MethodGet, w.path, "")
		var plan undelete.Plan
		if err := json.Unmarshal([]byte(body), &plan); err != nil || len(plan.Steps) != 1 {
			t.Fatalf("%s: %d %s", w.path, status, body)
		}
		if st := plan.Steps[0]; st.Name != w.name || st.Skip != w.skip || (st.Object == nil) != (w.skip != "") {
			t.Errorf("%s: %+v", w.path, st)
		}
	}
	if asked != 3 {
		t.Errorf("it asks about %d objects", asked)
	}
	if status, body := send(http.MethodGet, maps+"?resourceVersion=0", ""); strings.Contains(body, `"c"`) {
		t.Errorf("it was changed: %d %s", status, body)
	}
}
