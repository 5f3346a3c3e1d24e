package offsite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/offsite"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/storage/copies"
)

// staleStandby is a standby that serves reads while it follows.
type staleStandby struct {
	*apitest.Client
	url    string
	taken  <-chan *copies.Handover
	failed <-chan error
	log    *apitest.Log
}

// followStale runs a standby on a free port, which c then names. Its client has the credentials of another server's.
func followStale(t *testing.T, c *servertest.Config, of *servertest.Server) staleStandby {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Serving.Port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	log := &apitest.Log{}
	c.Diagnostics.Log = slog.New(slog.NewTextHandler(log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	taken, failed, done := make(chan *copies.Handover, 1), make(chan error, 1), make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		s := &offsite.Standby{
			Config: &c.Storage, Name: "standby", Log: c.Diagnostics.Log, Serve: server.ServeStale(c.Config, c.Options),
		}
		h, err := s.Run(ctx)
		if err != nil {
			failed <- err
			return
		}
		taken <- h
	}()
	url := fmt.Sprintf("https://127.0.0.1:%d", c.Serving.Port)
	return staleStandby{apitest.NewClient(t, of.HTTP(), url), url, taken, failed, log}
}

// changes returns the events of a watch. The channel is closed when the watch has ended, which must be in order.
func (s staleStandby) changes(t *testing.T, path string) <-chan string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.HTTP().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if w.StatusCode != http.StatusOK || w.Header.Get("Warning") == "" {
		t.Errorf("the watch: %d %v", w.StatusCode, w.Header)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		defer w.Body.Close()
		in := bufio.NewScanner(w.Body)
		for in.Scan() {
			var event struct {
				Type   string
				Object struct {
					Metadata struct{ Name, ResourceVersion string }
				}
			}
			if err := json.Unmarshal(in.Bytes(), &event); err != nil {
				t.Errorf("%s: %v", in.Bytes(), err)
			}
			lines <- fmt.Sprint(event.Type, " ", event.Object.Metadata.Name, " ", event.Object.Metadata.ResourceVersion)
		}
		if err := in.Err(); err != nil && t.Context().Err() == nil {
			t.Errorf("the watch did not end in order: %v", err)
		}
	}()
	return lines
}

const configMaps = "/api/v1/namespaces/default/configmaps"

// TestServeStale checks that a standby answers reads and watches with what the other server has written, at its revisions and by its rules,
// and marks them; that it refuses writes and writes nothing itself; and that it takes over on the same address.
func TestServeStale(t *testing.T) {
	to := t.TempDir()
	first, second := exclusive(t, to), exclusive(t, to)
	a := servertest.Start(t, first)
	a.Create(configMaps, apitest.ConfigMap("c"))
	a.DefineWidgets()
	a.Create("/apis/example.com/v1/namespaces/default/widgets", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`)
	a.Create("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
		`{"metadata":{"name":"reader"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]}`)
	a.Create("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", `{"metadata":{"name":"reader"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"reader"},
		"subjects":[{"kind":"User","name":"jane","apiGroup":"rbac.authorization.k8s.io"}]}`)
	a.Create("/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`)
	var token struct{ Status struct{ Token string } }
	if err := json.Unmarshal([]byte(a.Create("/api/v1/namespaces/default/serviceaccounts/robot/token", `{}`)), &token); err != nil {
		t.Fatal(err)
	}
	err := datadir.CopyFiles(datadir.Certificates(first.Storage.DataDir), datadir.Certificates(second.Storage.DataDir))
	if err != nil {
		t.Fatal(err)
	}

	b := followStale(t, &second, a)
	awaitLog(t, b.log, "serving reads")
	testStaleReads(t, a, b, token.Status.Token)
	testStaleRefusals(t, b)
	revision := a.Metadata(configMaps + "/c").ResourceVersion
	events := b.changes(t, configMaps+"?watch=1&resourceVersion="+revision)
	a.Create(configMaps, apitest.ConfigMap("d"))
	want := "ADDED d " + a.Metadata(configMaps+"/d").ResourceVersion
	if got := wait.Receive(t, "the change", events); got != want {
		t.Errorf("the watch shows %q, want %q", got, want)
	}
	_, text, _ := strings.Cut(b.log.String(), "serving reads")
	if strings.Contains(text, "takes no writes") || strings.Contains(text, "level=WARN") {
		t.Errorf("the standby tried to write, or has a problem:\n%s", text)
	}

	wait.NoError(t, "the order to take over", func() error { return offsite.Promote(second.Storage.DataDir) })
	servertest.Stop(t, a)
	second.Handover = wait.Receive(t, "the takeover", b.taken)
	if line, more := <-events; more {
		t.Errorf("the watch went on with %s", line)
	}
	servertest.Start(t, second)
	got := b.Send(http.MethodPost, configMaps, apitest.ConfigMap("e"))
	if got.Status != http.StatusCreated || got.Header.Get("Warning") != "" {
		t.Errorf("a write after the takeover: %+v", got)
	}
	b.Get(configMaps + "/d")
	b.Get("/readyz")
}

// testStaleReads compares what both servers answer.
func testStaleReads(t *testing.T, a *servertest.Server, b staleStandby, token string) {
	for _, path := range []string{
		configMaps + "/c", "/apis/example.com/v1/namespaces/default/widgets/w", "/api/v1/namespaces/default/serviceaccounts/robot",
		"/api/v1/namespaces", "/apis/rbac.authorization.k8s.io/v1/clusterroles?limit=3",
	} {
		want := a.Get(path)
		wait.Seen(t, path, func() (bool, string) {
			got := b.Send(http.MethodGet, path, "")
			if got.Status == http.StatusOK && (got.Header.Get("Keelson-Standby-Seconds") == "" ||
				!strings.Contains(got.Header.Get("Warning"), "this server is a standby: this answer is ")) {
				t.Errorf("%s is not marked: %v", path, got.Header)
			}
			return sameButListRevision(got.Body, want), got.Body
		})
	}
	jane := b.As("jane")
	if got := jane.Send(http.MethodGet, configMaps+"/c", ""); got.Status != http.StatusOK {
		t.Errorf("jane: %+v", got)
	}
	if got := jane.Send(http.MethodGet, "/api/v1/namespaces/default/secrets/c", ""); got.Status != http.StatusForbidden {
		t.Errorf("jane reads a Secret: %+v", got)
	}
	if review := b.Create("/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"`+token+`"}}`); !strings.Contains(review,
		"system:serviceaccount:default:robot") {
		t.Errorf("the review of a token of the other server: %s", review)
	}
	review := jane.Create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		`{"spec":{"resourceAttributes":{"namespace":"default","verb":"get","resource":"configmaps"}}}`)
	if !strings.Contains(review, `"allowed":true`) {
		t.Error(review)
	}
}

// sameButListRevision reports whether two answers are equal, except for the resourceVersion of a list, which grows with each write to the
// store.
func sameButListRevision(a, b string) bool {
	var x, y map[string]any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	for _, o := range []map[string]any{x, y} {
		if m, ok := o["metadata"].(map[string]any); ok && o["items"] != nil {
			delete(m, "resourceVersion")
			delete(m, "continue")
		}
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return string(p) == string(q)
}

// testStaleRefusals checks what a standby does not answer, and what it says of itself.
func testStaleRefusals(t *testing.T, b staleStandby) {
	for _, r := range [][2]string{
		{http.MethodPost, configMaps}, {http.MethodDelete, configMaps + "/c"}, {http.MethodPatch, configMaps + "/c"},
		{http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/robot/token"},
	} {
		got := b.Send(r[0], r[1], `{}`)
		if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" ||
			!strings.Contains(got.Message(), "for the server that holds the lock of the copy: 127.0.0.1:") {
			t.Errorf("%s %s: %+v", r[0], r[1], got)
		}
	}
	if got := b.Send(http.MethodGet, "/readyz?verbose", ""); got.Status != http.StatusInternalServerError ||
		!strings.Contains(got.Body, "[-]standby failed") || !strings.Contains(got.Body, "it has what the copy had ") {
		t.Errorf("/readyz: %+v", got)
	}
	if got := b.Send(http.MethodGet, "/readyz?exclude=standby", ""); got.Status != http.StatusOK {
		t.Errorf("/readyz without the check standby: %+v", got)
	}
	b.Get("/livez")
	if got := b.Get("/metrics"); !strings.Contains(got, "\nkeelson_standby_behind_seconds ") || !strings.Contains(got, "\nkeelson_standby_revision ") {
		t.Error("the metrics of a standby are missing")
	}
}

// TestServeStaleNeedsAuthority checks that a standby does not serve with an authority that no client knows.
func TestServeStaleNeedsAuthority(t *testing.T) {
	to := t.TempDir()
	first, second := exclusive(t, to), exclusive(t, to)
	a := servertest.Start(t, first)
	b := followStale(t, &second, a)
	if err := wait.Receive(t, "the end of the standby", b.failed); !strings.Contains(err.Error(), "copy the directory pki of that server") {
		t.Error(err)
	}
	if _, err := os.Stat(datadir.Certificates(second.Storage.DataDir)); err == nil {
		t.Error("it has made certificates")
	}
}
