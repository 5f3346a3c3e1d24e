package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/keelson-dev/keelson/internal/machinery/audit/sink"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

const auditEverything = `apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- {level: None, nonResourceURLs: ["/metrics"]}
- {level: Metadata, resources: [{group: "", resources: [secrets, serviceaccounts/token]}]}
- {level: RequestResponse, users: [admin]}
- {level: Metadata}
`

// audited returns a configuration with an audit log.
func audited(t *testing.T) settings {
	t.Helper()
	c := testConfig(t)
	dir := t.TempDir()
	c.Audit.PolicyFile, c.Audit.Log.Path = filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(c.Audit.PolicyFile, []byte(auditEverything), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// callWith sends a request with a bearer token and a body of the given content type.
func callWith(t testing.TB, c *http.Client, token, method, url, contentType, body string) apitest.Answer {
	t.Helper()
	return apitest.Send(t, c, method, url, body, "Authorization", "Bearer "+token, "Content-Type", contentType)
}

// events returns the events of finished requests in an audit log. All of these are requests of clients, because
// the server sends no requests to itself.
func events(t *testing.T, path string) []auditv1.Event {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []auditv1.Event
	for line := range bytes.Lines(content) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if e.Stage == auditv1.StageResponseComplete {
			out = append(out, e)
		}
	}
	return out
}

func TestAuditLog(t *testing.T) {
	c := audited(t)
	s := start(t, c)
	h := httpClient(t, s, false)
	maps := s.URL() + "/api/v1/namespaces/default/configmaps"
	callWith(t, h, "admintoken", "POST", maps, "application/json", `{"metadata":{"name":"a"},"data":{"k":"<v>"}}`)
	callWith(t, h, "admintoken", "PATCH", maps+"/a", "application/merge-patch+json", `{"data": {"x":"y"}}`)
	callWith(t, h, "davetoken", "GET", maps+"/a", "application/json", "")
	callWith(t, h, "admintoken", "DELETE", maps+"/a", "application/json", `{"propagationPolicy":"Background"}`)
	callWith(t, h, "admintoken", "GET", s.URL()+"/metrics", "application/json", "")
	stop(t, s)
	var got []string
	for _, e := range events(t, c.Audit.Log.Path) {
		line := fmt.Sprintf(
			"%s %s %s/%s %d", e.User.Username, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Name, e.ResponseStatus.Code,
		)
		if e.RequestObject != nil {
			line += " " + string(e.RequestObject.Raw)
		}
		if e.ResponseObject != nil {
			var object struct{ Kind string }
			if err := json.Unmarshal(e.ResponseObject.Raw, &object); err != nil {
				t.Fatal(err)
			}
			line += " -> " + object.Kind
			if bytes.Contains(e.ResponseObject.Raw, []byte("managedFields")) {
				t.Errorf("managedFields: %s", e.ResponseObject.Raw)
			}
		}
		got = append(got, line+" "+e.Annotations["authorization.k8s.io/decision"])
	}
	want := []string{
		`admin create configmaps/a 201 {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},` +
			`"data":{"k":"\u003cv\u003e"}} -> ConfigMap allow`,
		`admin patch configmaps/a 200 {"data":{"x":"y"}} -> ConfigMap allow`,
		`dave get configmaps/a 403 forbid`,
		`admin delete configmaps/a 200 {"kind":"DeleteOptions","apiVersion":"meta.k8s.io/__internal",` +
			`"propagationPolicy":"Background"} -> Status allow`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestAuditOfThePast checks how reads of the past are recorded. A rule of the policy for secrets also applies to
// the history of secrets, because the history shows their values.
func TestAuditOfThePast(t *testing.T) {
	c := audited(t)
	s := start(t, c)
	h := httpClient(t, s, false)
	secrets := s.URL() + "/api/v1/namespaces/default/secrets"
	callWith(t, h, "admintoken", "POST", secrets, "application/json", `{"metadata":{"name":"a"},"stringData":{"k":"hidden"}}`)
	for _, path := range []string{
		"/api/v1/namespaces/default/secrets/a/history?objects=true", "/api/v1/namespaces/default/secrets?asOf=0s",
		"/api/v1/namespaces/default/secrets/a/blockers", "/apis/history.keelson.dev/v1alpha1/namespaces/default/changes?limit=1",
		"/apis/history.keelson.dev/v1alpha1/changes?watch=true&timeoutSeconds=1",
		"/apis/history.keelson.dev/v1alpha1/namespaces/default/undelete?resources=secrets&asOf=0s", "/api/v1/namespaces/default/undelete?asOf=0s",
	} {
		if a := callWith(t, h, "admintoken", "GET", s.URL()+path, "application/json", ""); a.Status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	stop(t, s)
	var got []string
	for _, e := range events(t, c.Audit.Log.Path) {
		got = append(got, strings.Join([]string{
			e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Name, string(e.Level), e.RequestURI[strings.LastIndex(e.RequestURI, "/")+1:],
		}, " "))
		if e.ResponseObject != nil && bytes.Contains(e.ResponseObject.Raw, []byte("aGlkZGVu")) {
			t.Errorf("a secret is in the audit log: %s", e.ResponseObject.Raw)
		}
	}
	want := []string{
		"create secrets  a Metadata secrets", "get secrets history a Metadata history?objects=true", "list secrets   Metadata secrets?asOf=0s",
		"get secrets blockers a RequestResponse blockers", "list changes   RequestResponse changes?limit=1",
		"watch changes   RequestResponse changes?watch=true&timeoutSeconds=1",
		"list undelete   Metadata undelete?resources=secrets&asOf=0s", "get namespaces undelete default Metadata undelete?asOf=0s",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestSecretsAreInNoLog checks that the content of secrets and credentials is not in the server's log at any
// verbosity, not in the metrics, and in the audit log only at the levels that record it.
func TestSecretsAreInNoLog(t *testing.T) {
	const secret = "VERYSECRETVALUE"
	c := audited(t)
	var log apitest.Log
	c.Diagnostics.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.Level(-10)}))
	s := start(t, c)
	h := httpClient(t, s, false)
	secrets := s.URL() + "/api/v1/namespaces/default/secrets"
	if a := callWith(
		t, h, "admintoken", "POST", secrets, "application/json", `{"metadata":{"name":"s"},"stringData":{"k":"`+secret+`"}}`,
	); a.Status != 201 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	callWith(
		t, h, "admintoken", "PATCH", secrets+"/s", "application/merge-patch+json", `{"stringData":{"k":"`+secret+`2"}}`,
	)
	callWith(t, h, "admintoken", "GET", secrets+"?access_token="+secret, "application/json", "")
	callWith(t, h, secret, "GET", secrets, "application/json", "")
	callWith(
		t, h, "admintoken", "POST", secrets, "application/json", `{"metadata":{"name":"s"},"stringData":{"k":"`+secret+`"`,
	)
	counts := callWith(t, h, "admintoken", "GET", s.URL()+"/metrics", "application/json", "")
	stop(t, s)
	content, err := os.ReadFile(c.Audit.Log.Path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(content, []byte(`"secrets"`)) || !strings.Contains(log.String(), "msg=HTTP") {
		t.Fatal("the requests were not noted at all")
	}
	for line := range bytes.Lines(content) {
		// A URI is recorded as it was sent.
		if bytes.Contains(bytes.ReplaceAll(line, []byte("?access_token="+secret), nil), []byte(secret)) ||
			bytes.Contains(line, []byte("admintoken")) {
			t.Errorf("audit: %s", line)
		}
	}
	for name, text := range map[string]string{"log": log.String(), "metrics": counts.Body} {
		for line := range strings.Lines(text) {
			if strings.Contains(line, secret) || strings.Contains(line, "admintoken") ||
				strings.Contains(line, "VkVSWVNFQ1JFVFZBTFVF") {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}

// hangingWebhook configures an audit webhook that accepts requests and never responds.
func hangingWebhook(t *testing.T, c *settings, mode string) {
	t.Helper()
	release := make(chan struct{})
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hook.Close)
	t.Cleanup(func() { close(release) })
	c.Audit.Webhook.ConfigFile, c.Audit.Webhook.Mode = filepath.Join(t.TempDir(), "kubeconfig"), mode
	c.Audit.Webhook.BatchSize = 1
	text := fmt.Sprintf(
		`{current-context: c, contexts: [{name: c, context: {cluster: a}}], clusters: [{name: a, cluster: {server: %q}}]}`,
		hook.URL,
	)
	if err := os.WriteFile(c.Audit.Webhook.ConfigFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestHangingAuditWebhook checks that requests are served and that the server stops while the audit webhook hangs.
func TestHangingAuditWebhook(t *testing.T) {
	for _, mode := range sink.Modes() {
		t.Run(mode, func(t *testing.T) {
			c := audited(t)
			c.Audit.Log.Path = ""
			c.auditBudget, c.auditFlushTime = time.Millisecond, time.Millisecond
			hangingWebhook(t, &c, mode)
			s, err := Start(t.Context(), c.Config, c.Options)
			if err != nil {
				t.Fatal(err)
			}
			h := httpClient(t, s, false)
			want := http.StatusOK
			if mode == sink.ModeBlockingStrict {
				want = http.StatusInternalServerError
			}
			if a := callWith(t, h, "admintoken", "GET", s.URL()+"/api/v1/namespaces/default", "", ""); a.Status != want {
				t.Errorf("%d %s", a.Status, a.Body)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := s.Stop(ctx); err != nil && !strings.Contains(err.Error(), "hand on audit events") {
				t.Error(err)
			}
		})
	}
}

// TestRetryAfter checks that a stopping server rejects new requests with 429 and Retry-After, and finishes the
// request in flight.
func TestRetryAfter(t *testing.T) {
	c := testConfig(t)
	c.Serving.Shutdown.SendRetryAfter = true
	s := start(t, c)
	entered, release := make(chan bool), make(chan bool)
	servePods(s, func(http.ResponseWriter, *http.Request) {
		entered <- true
		<-release
	})
	first, second := httpClient(t, s, true), httpClient(t, s, true)
	result := make(chan apitest.Answer, 1)
	go func() { result <- apitest.Send(t, first, "GET", s.URL()+"/api/v1/pods", "") }()
	<-entered
	done := make(chan error, 1)
	go func() { done <- s.Stop(context.Background()) }()
	wait.Until(t, "the server to refuse requests", s.http.refusing.Load)
	if a := apitest.Send(t, second, "GET", s.URL()+"/api/v1/pods", ""); a.Status != http.StatusTooManyRequests ||
		a.Header.Get("Retry-After") != "5" {
		t.Errorf("%d %v %s", a.Status, a.Header, a.Body)
	}
	if a := apitest.Send(t, second, "GET", s.URL()+"/livez", ""); a.Status != http.StatusOK {
		t.Errorf("livez: %d", a.Status)
	}
	close(release)
	if a := <-result; a.Status != http.StatusOK {
		t.Errorf("in flight: %d", a.Status)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
