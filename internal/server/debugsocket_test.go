package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

func TestDebugSocket(t *testing.T) {
	config := testConfig(t)
	config.Diagnostics.NoProfiling = true
	config.Diagnostics.DebugSocketPath = filepath.Join(t.TempDir(), "debug.sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: config.Diagnostics.DebugSocketPath, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	s := start(t, config)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", config.Diagnostics.DebugSocketPath)
	}}
	c := &http.Client{Transport: transport}
	for path, want := range map[string]int{"/debug/pprof/heap?debug=1": 200, "/debug/pprof/": 200, "/api/v1/secrets": 404} {
		if a := apitest.Send(t, c, "GET", "http://socket"+path, ""); a.Status != want {
			t.Errorf("%s: %d, want %d", path, a.Status, want)
		}
	}
	if info, err := os.Stat(config.Diagnostics.DebugSocketPath); err != nil || info.Mode().Perm() != datadir.PrivateFile {
		t.Errorf("%v %v", info, err)
	}
	transport.CloseIdleConnections()
	stop(t, s)
	if _, err := os.Stat(config.Diagnostics.DebugSocketPath); err == nil {
		t.Error("the socket stays")
	}
}

func TestLogsAreServed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.log"), []byte("line"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := testConfig(t)
	config.Diagnostics.LogsHandler = true
	s := start(t, config)
	if a := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/logs/", ""); a.Status != http.StatusOK {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := apitest.Send(t, httpClient(t, s, false), "GET", s.URL()+"/logs/", ""); a.Status != http.StatusForbidden {
		t.Errorf("anonymous: %d %s", a.Status, a.Body)
	}
	s.http.routes.debug.logs = newLogs(dir)
	if a := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/logs/a.log", ""); a.Body != "line" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// TestDeleteCollectionWorkers deletes more objects than there are workers.
func TestDeleteCollectionWorkers(t *testing.T) {
	config := testConfig(t)
	config.Requests.DeleteCollectionWorkers = 4
	s := start(t, config)
	c, path := httpClient(t, s, true), s.URL()+"/api/v1/namespaces/default/configmaps"
	for i := range 20 {
		body := fmt.Sprintf(`{"metadata":{"name":"c%d","labels":{"a":"b"}}}`, i)
		if a := callWith(t, c, "", "POST", path, "application/json", body); a.Status != http.StatusCreated {
			t.Fatal(a)
		}
	}
	if a := apitest.Send(t, c, "DELETE", path+"?labelSelector=a%3Db", ""); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	if a := apitest.Send(t, c, "GET", path+"/c7", ""); a.Status != http.StatusNotFound {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
