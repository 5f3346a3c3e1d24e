package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/server/servingcert"
)

// folder is a directory whose files a test replaces.
type folder struct {
	t   *testing.T
	dir string
}

func newFolder(t *testing.T) folder { return folder{t, t.TempDir()} }

// write writes a file and returns its path.
func (f folder) write(name, content string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := certs.WriteFile(path, []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// hookFile writes a kubeconfig of a webhook. cluster is added to the members of its cluster, in YAML.
func (f folder) hookFile(name, url, cluster string) string {
	f.t.Helper()
	return f.write(name, "clusters: [{name: c, cluster: {server: '"+url+"'"+cluster+"}}]\n"+
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n")
}

// servingSet returns an authority and a serving certificate of it for 127.0.0.1 and names.
func servingSet(t *testing.T, names ...string) *certs.Set {
	t.Helper()
	set, err := certs.Ensure(certs.Options{Serving: true, Names: names, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// serveTLS serves with the certificate of a set.
func serveTLS(t *testing.T, set *certs.Set, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	pair, err := set.Serving.TLS()
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// fileMetrics returns the series of keelson_file_* of a flag without their timestamps.
func fileMetrics(t *testing.T, s *Server, flag string) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/metrics", "").Body) {
		if strings.HasPrefix(line, "keelson_file_") && strings.Contains(line, `"`+flag+`"`) &&
			!strings.Contains(line, "timestamp") {
			line = strings.ReplaceAll(strings.TrimSpace(line), `flag="`+flag+`"`, "")
			out = append(out, strings.TrimPrefix(line, "keelson_file_"))
		}
	}
	return strings.Join(out, " ")
}

// TestBadFilesAreCountedAndLoggedOnce replaces the file of static tokens by bad files and by a good one.
func TestBadFilesAreCountedAndLoggedOnce(t *testing.T) {
	const flag = "--token-auth-file"
	files, conf, log := newFolder(t), testConfig(t), &apitest.Log{}
	conf.Diagnostics.Log, conf.fileReload = slog.New(slog.NewTextHandler(log, nil)), time.Hour
	conf.Authentication.TokenFile = files.write("tokens.csv", testTokens)
	s := start(t, conf)
	for i, step := range []struct{ content, metrics string }{
		{testTokens, `in_effect{} 1 reloads_total{,status="failure"} 0 reloads_total{,status="success"} 0`},
		{"a,b", `in_effect{} 0 reloads_total{,status="failure"} 1 reloads_total{,status="success"} 0`},
		{"a,b", `in_effect{} 0 reloads_total{,status="failure"} 1 reloads_total{,status="success"} 0`},
		{"c,d", `in_effect{} 0 reloads_total{,status="failure"} 2 reloads_total{,status="success"} 0`},
		{testTokens + "n,new,1\n", `in_effect{} 1 reloads_total{,status="failure"} 2 reloads_total{,status="success"} 1`},
	} {
		files.write("tokens.csv", step.content)
		s.config.files.Check()
		if got := fileMetrics(t, s, flag); got != step.metrics {
			t.Errorf("step %d: %s, not %s", i, got, step.metrics)
		}
		a := apitest.Send(t, httpClient(t, s, false), "GET", s.URL()+"/api", "", "Authorization", "Bearer admintoken")
		if a.Status != http.StatusOK {
			t.Errorf("step %d: a token of the good file: %d", i, a.Status)
		}
	}
	var said []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, flag) {
			said = append(said, line)
		}
	}
	if len(said) != 3 || !strings.Contains(said[0], conf.Authentication.TokenFile) || !strings.Contains(said[0], "at least 3 columns") {
		t.Errorf("logged %q", said)
	}
}

// TestKubeletAuthorityIsReloaded rotates the authority of kubelets while a client follows a log. The log
// continues, and new requests are verified only with the new authority.
func TestKubeletAuthorityIsReloaded(t *testing.T) {
	files, good, other := newFolder(t), servingSet(t, "kubelet.example"), servingSet(t)
	lines := make(chan string, 1)
	kubelet := serveTLS(t, good, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("follow") == "" {
			fmt.Fprintln(w, "once")
			return
		}
		for {
			select {
			case line := <-lines:
				fmt.Fprintln(w, line)
				_ = http.NewResponseController(w).Flush() // the client is there until the end
			case <-r.Context().Done():
				return
			}
		}
	})
	c := startCluster(t, func(conf *settings) {
		conf.fileReload = time.Hour
		conf.Network.Connections.KubeletCAFile = files.write("ca.crt", string(good.CA))
		conf.Network.Connections.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, kubelet.Listener.Addr().String())
		}
	})
	c.patchStatus("nodes/n1", `{"status":{"addresses":[{"type":"Hostname","address":"kubelet.example"}]}}`)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", c.path("pods/running/log?follow=true"), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines <- "0"
	followed, err := c.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer followed.Body.Close()
	in := bufio.NewScanner(followed.Body)
	for i, step := range []struct {
		ca, want string
		status   int
	}{
		{string(good.CA), "once", http.StatusOK},
		{string(other.CA), "certificate signed by unknown authority", http.StatusInternalServerError},
		{"no certificate", "certificate signed by unknown authority", http.StatusInternalServerError},
		{string(good.CA), "once", http.StatusOK},
	} {
		files.write("ca.crt", step.ca)
		c.config.files.Check()
		if a := apitest.Send(t, c.http, "GET", c.path("pods/running/log"), ""); a.Status != step.status ||
			!strings.Contains(a.Body, step.want) {
			t.Errorf("step %d: %d %s", i, a.Status, a.Body)
		}
		if !in.Scan() || in.Text() != fmt.Sprint(i) {
			t.Fatalf("the followed log, line %d: %q %v", i, in.Text(), in.Err())
		}
		lines <- fmt.Sprint(i + 1)
	}
}

// tokenHook answers TokenReviews with a user.
func tokenHook(user string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview",
			"status":{"authenticated":true,"user":{"username":%q}}}`, user)
	}
}

// TestTokenWebhookIsReloaded changes the kubeconfig of the webhook that authenticates tokens, and the authority that it
// names.
func TestTokenWebhookIsReloaded(t *testing.T) {
	files, set := newFolder(t), servingSet(t)
	one, two := httptest.NewServer(tokenHook("one")), serveTLS(t, set, tokenHook("two"))
	defer one.Close()
	conf := testConfig(t)
	conf.fileReload = time.Hour
	hook := &conf.Authentication.Webhook
	hook.ConfigFile, hook.Version, hook.CacheTTL = files.hookFile("hook", one.URL, ""), "v1", time.Nanosecond
	s := start(t, conf)
	user := func() string { return whoIs(t, s, "some-token") }
	if got := user(); !strings.Contains(got, `"one"`) {
		t.Errorf("before: %s", got)
	}
	files.write("ca.crt", string(servingSet(t).CA))
	files.hookFile("hook", two.URL, ", certificate-authority: ca.crt")
	s.config.files.Check()
	if got := user(); got != "" {
		t.Errorf("a webhook of another authority is believed: %s", got)
	}
	files.write("ca.crt", string(set.CA))
	s.config.files.Check()
	if got := user(); !strings.Contains(got, `"two"`) {
		t.Errorf("after its authority was replaced: %s", got)
	}
	files.write("hook", "nonsense")
	s.config.files.Check()
	if got := user(); !strings.Contains(got, `"two"`) {
		t.Errorf("after a bad kubeconfig: %s", got)
	}
}

// TestAccessWebhookIsReloaded changes the kubeconfig of the webhook that authorizes requests, which a flag or a
// configuration file names.
func TestAccessWebhookIsReloaded(t *testing.T) {
	answer := func(allowed bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":%t}}`, allowed)
		}
	}
	no, yes := httptest.NewServer(answer(false)), httptest.NewServer(answer(true))
	defer no.Close()
	defer yes.Close()
	for name, configure := range map[string]func(*config.Authorization, folder, string){
		"flag": func(c *config.Authorization, _ folder, hook string) {
			c.Modes, c.Webhook.ConfigFile, c.Webhook.Version = []string{config.ModeWebhook}, hook, "v1"
		},
		"file": func(c *config.Authorization, files folder, hook string) {
			c.ConfigFile = files.write("authorization", `apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: hook
  webhook: {timeout: 3s, subjectAccessReviewVersion: v1, matchConditionSubjectAccessReviewVersion: v1, failurePolicy: Deny,
    authorizedTTL: 1ms, unauthorizedTTL: 1ms, connectionInfo: {type: KubeConfigFile, kubeConfigFile: `+hook+`}}
`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			files, conf := newFolder(t), testConfig(t)
			conf.fileReload = time.Hour
			configure(&conf.Authorization, files, files.hookFile("hook", no.URL, ""))
			c := newCluster(t, conf)
			const path = "/api/v1/namespaces/default/configmaps"
			if a := c.dave(http.MethodGet, path); a.Status != http.StatusForbidden {
				t.Fatalf("before: %d %s", a.Status, a.Body)
			}
			files.hookFile("hook", yes.URL, "")
			c.config.files.Check()
			if a := c.dave(http.MethodGet, path); a.Status != http.StatusOK {
				t.Errorf("after: %d %s", a.Status, a.Body)
			}
		})
	}
}

// TestAuditPolicyIsReloaded changes the audit policy. Requests that begin later are recorded by the new policy. A
// request that has already begun is recorded by the old one.
func TestAuditPolicyIsReloaded(t *testing.T) {
	const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n"
	conf := audited(t)
	conf.fileReload = time.Hour
	s := start(t, conf)
	files := folder{t, filepath.Dir(conf.Audit.PolicyFile)}
	use := func(policy string) {
		files.write(filepath.Base(conf.Audit.PolicyFile), policy)
		s.config.files.Check()
	}
	client := httpClient(t, s, true)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL()+"/api/v1/namespaces/default/configmaps?watch=1&during=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	get := func(mark string) {
		apitest.Send(t, client, "GET", s.URL()+"/api/v1/namespaces/default/configmaps?"+mark, "")
	}
	get("first")
	use(head + "- {level: None}\n")
	get("second")
	use("nonsense")
	get("third")
	end()
	watch.Body.Close()
	// The audit event of the watch appears a little later, when the server has noticed that the client is gone.
	recorded := func(mark string) bool {
		for _, e := range events(t, conf.Audit.Log.Path) {
			if strings.Contains(e.RequestURI, mark) {
				return true
			}
		}
		return false
	}
	wait.Until(t, "the watch that began before the change to be recorded after its end", func() bool { return recorded("during") })
	use(head + "- {level: Metadata}\n")
	get("fourth")
	for mark, want := range map[string]bool{"first": true, "second": false, "third": false, "fourth": true} {
		if recorded(mark) != want {
			t.Errorf("%s: recorded %v, not %v", mark, !want, want)
		}
	}
}

// TestAuditEventsFollowTheWebhook changes the kubeconfig of the audit webhook while it refuses a batch: the events are sent
// to the other webhook.
func TestAuditEventsFollowTheWebhook(t *testing.T) {
	files, conf, got := newFolder(t), audited(t), make(chan string, 1000)
	var server atomic.Pointer[Server]
	two := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var text strings.Builder
		if _, err := bufio.NewReader(r.Body).WriteTo(&text); err == nil {
			got <- text.String()
		}
	}))
	defer two.Close()
	one := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if s := server.Load(); s != nil {
			files.hookFile("hook", two.URL, "")
			s.config.files.Check()
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer one.Close()
	conf.fileReload, conf.Audit.Log.Path = time.Hour, ""
	conf.Audit.Webhook.ConfigFile = files.hookFile("hook", one.URL, "")
	conf.Audit.Webhook.InitialBackoff, conf.Audit.Webhook.BatchWait = time.Millisecond, time.Millisecond
	s := start(t, conf)
	server.Store(s)
	apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/api/v1/namespaces/default/configmaps?mark=1", "")
	for !strings.Contains(wait.Receive(t, "the event at the other webhook", got), "mark=1") {
	}
}

// TestAdmissionConfigurationIsReloaded changes the configuration of plug-ins, in the file itself and in one that it names.
func TestAdmissionConfigurationIsReloaded(t *testing.T) {
	files, conf := newFolder(t), testConfig(t)
	conf.fileReload = time.Hour
	conf.Admission.Enable = []string{"EventRateLimit"}
	limits := files.write("limits", `{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration,
		limits: [{type: Server, qps: 1, burst: 1}]}`)
	write := func(level string) string {
		return files.write("admission", `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- {name: EventRateLimit, path: `+limits+`}
- name: PodSecurity
  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: `+
			level+`}}
`)
	}
	conf.Admission.ConfigFile = write("baseline")
	s := start(t, conf)
	const path = "/api/v1/namespaces/default/pods?dryRun=All"
	post(t, s, path, apitest.HostPod, http.StatusForbidden)
	for _, step := range []struct {
		level string
		want  int
	}{
		{"privileged", http.StatusCreated}, {"nonsense", http.StatusCreated}, {"baseline", http.StatusForbidden},
	} {
		write(step.level)
		s.config.files.Check()
		post(t, s, path, apitest.HostPod, step.want)
	}
	chain := s.api.writes.Admission.Current()
	files.write("limits", `{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration,
		limits: [{type: Server, qps: 1, burst: 5}]}`)
	s.config.files.Check()
	if s.api.writes.Admission.Current() == chain {
		t.Error("the file that the configuration names is not followed")
	}
}

// TestIssuerAuthorityIsReloaded replaces the file of --oidc-ca-file, which had the wrong authority.
func TestIssuerAuthorityIsReloaded(t *testing.T) {
	p, files, conf := newProvider(t), newFolder(t), testConfig(t)
	conf.fileReload = time.Hour
	o := &conf.Authentication.OIDC
	o.IssuerURL, o.ClientID, o.GroupsClaim, o.SigningAlgorithms = p.URL, "keelson", "groups", []string{"ES256"}
	o.CAFile = files.write("ca.crt", string(servingSet(t).CA))
	s := start(t, conf)
	token := p.token(t, "jane")
	if got := whoIs(t, s, token); got != "" {
		t.Errorf("with the wrong authority: %s", got)
	}
	files.write("ca.crt", p.ca())
	s.config.files.Check()
	if got := whoIs(t, s, token); !strings.Contains(got, "#jane") {
		t.Errorf("with the right one: %q", got)
	}
	files.write("ca.crt", "no certificate")
	s.config.files.Check()
	if got := whoIs(t, s, token); !strings.Contains(got, "#jane") {
		t.Errorf("after a bad file: %q", got)
	}
}

// TestTracingIsReloaded changes the configuration of tracing. Later spans are sent to another collector.
func TestTracingIsReloaded(t *testing.T) {
	one, file := collectSpans(t, "1000000")
	two, other := collectSpans(t, "1000000")
	conf := testConfig(t)
	conf.Diagnostics.TracingConfigFile, conf.fileReload = file, time.Hour
	s, err := Start(t.Context(), conf.Config, conf.Options)
	if err != nil {
		t.Fatal(err)
	}
	client := httpClient(t, s, true)
	get := func(name string) {
		apitest.Send(t, client, "GET", s.URL()+"/api/v1/namespaces/default/configmaps/"+name, "")
	}
	get("first")
	content, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	folder{t, filepath.Dir(file)}.write(filepath.Base(file), string(content))
	s.config.files.Check()
	get("second")
	stop(t, s) // sends the remaining spans
	names := func(c *spanCollector) string {
		c.mu.Lock()
		defer c.mu.Unlock()
		var text strings.Builder
		for _, span := range c.spans {
			text.WriteString(span.String())
		}
		return text.String()
	}
	if text := names(one); !strings.Contains(text, "configmaps/first") || strings.Contains(text, "configmaps/second") {
		t.Error("the first collector has not the first request alone")
	}
	if text := names(two); !strings.Contains(text, "configmaps/second") || strings.Contains(text, "configmaps/first") {
		t.Error("the second collector has not the second request alone")
	}
}

// TestNamedCertificatesFollowTheirNames replaces a certificate of --tls-sni-cert-key by one with another name.
func TestNamedCertificatesFollowTheirNames(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile, before := writePair(t, dir, "own", "a.example.com")
	conf := testConfig(t)
	conf.fileReload = time.Hour
	conf.Serving.TLS.SNICertKeys = []string{certFile + "," + keyFile}
	s := start(t, conf)
	serial := func(name string) string {
		t.Helper()
		//nolint:gosec // the test looks at the certificate itself
		got, _, err := shown(t, s, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := serial("a.example.com"); got != before {
		t.Errorf("before: %s, not %s", got, before)
	}
	_, _, after := writePair(t, dir, "own", "b.example.com")
	s.config.files.Check()
	if got := serial("b.example.com"); got != after {
		t.Errorf("the new name: %s, not %s", got, after)
	}
	if got := serial("a.example.com"); got == after || got == before {
		t.Errorf("the name that is gone has certificate %s", got)
	}
}

// TestOwnCertificateInCertDirIsRenewed starts a server without a data directory. --cert-dir has a certificate that
// an earlier process generated. The server uses it unless it expires soon, and replaces it while running when that
// is near.
func TestOwnCertificateInCertDirIsRenewed(t *testing.T) {
	const day = 24 * time.Hour
	files := newFolder(t)
	conf := testConfig(t)
	conf.Storage.Backend, conf.Storage.DataDir, conf.fileReload = config.StorageMemory, "", time.Hour
	conf.Serving.TLS.CertDir = files.dir
	write := func(age time.Duration) string {
		t.Helper()
		set, err := certs.Ensure(certs.Options{Serving: true, Now: func() time.Time { return time.Now().Add(-age) }})
		if err != nil {
			t.Fatal(err)
		}
		files.write(servingcert.KeyName, string(set.Serving.Key))
		files.write(servingcert.CertName, string(set.Serving.Cert)+string(set.CA))
		pair, err := set.Serving.TLS()
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.SerialNumber.String()
	}
	old := write(350 * day)
	s := start(t, conf)
	if leaf := leafOf(t, s); leaf.SerialNumber.String() == old || certs.EndsSoon(leaf, time.Now()) {
		t.Errorf("a certificate that ends soon is served after a start, until %v", leaf.NotAfter)
	}
	stop(t, s)
	kept := write(300 * day)
	s = start(t, conf)
	if got := leafOf(t, s).SerialNumber.String(); got != kept {
		t.Errorf("served is %s, not %s of the file", got, kept)
	}
	old = write(350 * day)
	if err := s.identity.Renew(); err != nil {
		t.Fatal(err)
	}
	if leaf := leafOf(t, s); leaf.SerialNumber.String() == old || certs.EndsSoon(leaf, time.Now()) {
		t.Errorf("a certificate that ends soon is served by a server that runs, until %v", leaf.NotAfter)
	}
	if err := leafOf(t, s).VerifyHostname("localhost"); err != nil {
		t.Error(err)
	}
	given := write(0)
	if err := s.identity.Renew(); err != nil {
		t.Fatal(err)
	}
	if got := leafOf(t, s).SerialNumber.String(); got != given {
		t.Error("a certificate that does not end soon is replaced")
	}
}
