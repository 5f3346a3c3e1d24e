package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

const testTokens = `admintoken,admin,admin,"system:masters"
davetoken,dave,u-dave
erintoken,erin,u-erin
`

// defaultSettings returns the defaults.
func defaultSettings() settings { return settings{Config: config.Default()} }

// testConfig returns the configuration of a server in a new directory on a free port. The controller that
// publishes root certificates is off, because tests count the ConfigMaps of a namespace and the admission calls
// for them.
func testConfig(t testing.TB) settings {
	t.Helper()
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(testTokens), 0o600); err != nil {
		t.Fatal(err)
	}
	c := defaultSettings()
	c.Storage.DataDir, c.Serving.Port, c.Authentication.TokenFile = filepath.Join(dir, "data"), 0, tokens
	c.Diagnostics.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	// The other controllers would change objects that tests of the API check. Tests of a controller switch it on.
	c.Controllers.Names = []string{serviceAccountController, resourceQuotaController}
	return c
}

func start(t testing.TB, c settings) *Server {
	t.Helper()
	s, err := Start(context.Background(), c.Config, c.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t testing.TB, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// httpClient returns a client that verifies the server by its authority. With admin it also has the
// administrator's client certificate.
func httpClient(t testing.TB, s *Server, admin bool) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA())
	config := &tls.Config{RootCAs: pool}
	if admin {
		pair, err := s.Admin().TLS()
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// admin returns a client of the administrator.
func admin(t testing.TB, s *Server) *apitest.Client {
	t.Helper()
	return apitest.NewClient(t, httpClient(t, s, true), s.URL())
}

func TestImpersonationAndAuthorization(t *testing.T) {
	s := start(t, testConfig(t))
	const (
		admin = "Bearer admintoken"
		dave  = "Bearer davetoken"
	)
	c := httpClient(t, s, false)
	for _, step := range []struct {
		name, method, path string
		headers            []string
		status             int
		message            string
	}{
		{"anonymous health", "GET", "/healthz", nil, 200, ""},
		{"anonymous version", "GET", "/version", nil, 200, ""},
		{
			"anonymous check", "GET", "/livez/ping", nil, 403,
			`forbidden: User "system:anonymous" cannot get path "/livez/ping"`,
		},
		{"anonymous head", "HEAD", "/healthz", nil, 403, ""},
		{"anonymous discovery", "GET", "/api", nil, 403, `forbidden: User "system:anonymous" cannot get path "/api"`},
		{
			"anonymous list", "GET", "/api/v1/pods", nil, 403,
			`pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" at the cluster scope`,
		},
		{"wrong token", "GET", "/healthz", []string{"Authorization", "Bearer wrong"}, 401, "Unauthorized"},
		{"no token in the header", "GET", "/healthz", []string{"Authorization", "Bearer"}, 200, ""},
		{"another scheme", "GET", "/healthz", []string{"Authorization", "Basic YTpi"}, 200, ""},
		{"scheme in capitals", "GET", "/metrics", []string{"Authorization", "BEARER admintoken"}, 200, ""},
		{"admin", "GET", "/none", []string{"Authorization", admin}, 404, ""},
		{"user on discovery", "GET", "/apis", []string{"Authorization", dave}, 200, ""},
		{
			"user on metrics", "GET", "/metrics", []string{"Authorization", dave}, 403,
			`forbidden: User "dave" cannot get path "/metrics"`,
		},
		{"user on a name", "GET", "/apis/apps/v1/namespaces/n/deployments/d/scale", []string{"Authorization", dave}, 403,
			`deployments.apps "d" is forbidden: User "dave" cannot get resource "deployments/scale" in API group ` +
				`"apps" in the namespace "n"`},
		{"user watches one name", "GET", "/api/v1/namespaces/n/configmaps?watch=true&fieldSelector=metadata.name%3Da",
			[]string{"Authorization", dave}, 403,
			`configmaps "a" is forbidden: User "dave" cannot watch resource "configmaps" in API group "" in the namespace "n"`},
		{
			"admin as another", "GET", "/metrics", []string{"Authorization", admin, "Impersonate-User", "jane"}, 403,
			`forbidden: User "jane" cannot get path "/metrics"`,
		},
		{"another on discovery", "GET", "/api", []string{"Authorization", admin, "Impersonate-User", "jane"}, 200, ""},
		{
			"another in a group", "GET", "/metrics",
			[]string{"Authorization", admin, "Impersonate-User", "jane", "Impersonate-Group", "system:masters"}, 200, "",
		},
		{"impersonation by a user", "GET", "/api/v1/namespaces/n",
			[]string{"Authorization", dave, "Impersonate-User", "admin", "Impersonate-Group", "system:masters"}, 403,
			`namespaces "n" is forbidden: User "dave" cannot impersonate-on:user-info:get resource "namespaces" in ` +
				`API group "" in the namespace "n"`},
		{"impersonation without a name", "GET", "/healthz",
			[]string{"Authorization", admin, "Impersonate-Group", "developers"}, 400,
			`requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"developers"}, Extra:map[string][]string(nil)} ` +
				`without impersonating a user name`},
		{
			"front proxy headers", "GET", "/metrics", []string{"X-Remote-User", "admin", "X-Remote-Group", "system:masters"},
			403, `forbidden: User "system:anonymous" cannot get path "/metrics"`,
		},
		{
			"timeout without a unit", "GET", "/healthz?timeout=10", nil, 400,
			`invalid timeout specified in the request URL - time: missing unit in duration "10"`,
		},
		{"timeout", "GET", "/healthz?timeout=5s", nil, 200, ""},
	} {
		a := apitest.Send(t, c, step.method, s.URL()+step.path, "", step.headers...)
		if a.Status != step.status || a.Message() != step.message {
			t.Errorf("%s: %d %q, want %d %q", step.name, a.Status, a.Message(), step.status, step.message)
		}
		if a.Header.Get("Audit-Id") == "" {
			t.Errorf("%s: no Audit-Id", step.name)
		}
		if got := a.Header.Get("Cache-Control"); got != "no-cache, private" {
			t.Errorf("%s: Cache-Control %q", step.name, got)
		}
	}
}

func TestClientCertificate(t *testing.T) {
	s := start(t, testConfig(t))
	c := httpClient(t, s, true)
	for range 2 { // the second time with the user that the connection remembers
		if a := apitest.Send(t, c, "GET", s.URL()+"/metrics", ""); a.Status != http.StatusOK {
			t.Errorf("administrator: %d %s", a.Status, a.Body)
		}
	}
	other := start(t, testConfig(t))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA())
	pair, err := other.Admin().TLS()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{
			RootCAs:              pool,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
		},
	}
	defer transport.CloseIdleConnections()
	stranger := &http.Client{Transport: transport}
	if a := apitest.Send(t, stranger, "GET", s.URL()+"/healthz", ""); a.Status != http.StatusUnauthorized {
		t.Errorf("a stranger's certificate: %d", a.Status)
	}
}

func TestHealthAnswers(t *testing.T) {
	s := start(t, testConfig(t))
	c := httpClient(t, s, true)
	hooks := ""
	for _, name := range strings.Fields("start-apiserver-admission-initializer generic-apiserver-start-informers " +
		"priority-and-fairness-config-consumer priority-and-fairness-filter storage-object-count-tracker-hook " +
		"start-apiextensions-informers start-apiextensions-controllers crd-informer-synced " +
		"start-system-namespaces-controller start-cluster-authentication-info-controller " +
		"start-kube-apiserver-identity-lease-controller start-kube-apiserver-identity-lease-garbage-collector " +
		"storage-readiness start-legacy-token-tracking-controller start-service-ip-repair-controllers rbac/bootstrap-roles " +
		"scheduling/bootstrap-system-priority-classes priority-and-fairness-config-producer bootstrap-controller " +
		"start-kubernetes-service-cidr-controller start-kube-aggregator-informers " +
		"apiservice-status-local-available-controller apiservice-status-remote-available-controller " +
		"apiservice-registration-controller apiservice-discovery-controller kube-apiserver-autoregistration " +
		"apiservice-openapi-controller apiservice-openapiv3-controller") {
		hooks += "[+]poststarthook/" + name + " ok\n"
		if name == "kube-apiserver-autoregistration" {
			hooks += "[+]autoregister-completion ok\n"
		}
	}
	for path, want := range map[string]apitest.Answer{
		"/healthz":         {Status: 200, Body: "ok"},
		"/readyz/shutdown": {Status: 200, Body: "ok"},
		"/livez/shutdown":  {Status: 404, Body: "404 page not found\n"},
		"/healthz/":        {Status: 404, Body: "404 page not found\n"},
		"/livez?verbose": {
			Status: 200, Body: "[+]ping ok\n[+]log ok\n[+]loopback-serving-certificate ok\n[+]etcd ok\n" + hooks + "livez check passed\n",
		},
		"/livez?verbose&exclude=log": {
			Status: 200, Body: "[+]ping ok\n[+]log excluded: ok\n[+]loopback-serving-certificate ok\n[+]etcd ok\n" +
				hooks + "livez check passed\n",
		},
		"/livez?exclude=no": {Status: 200, Body: "ok"},
	} {
		if a := apitest.Send(t, c, "GET", s.URL()+path, ""); a.Status != want.Status || a.Body != want.Body {
			t.Errorf("%s: %d %q, want %d %q", path, a.Status, a.Body, want.Status, want.Body)
		}
	}
	s.ending.stopping.Store(true)
	a := apitest.Send(t, c, "GET", s.URL()+"/readyz", "")
	if a.Status != 500 || !strings.Contains(a.Body, "[-]shutdown failed: reason withheld\nreadyz check failed\n") {
		t.Errorf("stopping: %d %q", a.Status, a.Body)
	}
	if a := apitest.Send(t, c, "GET", s.URL()+"/livez", ""); a.Status != 200 {
		t.Errorf("livez while stopping: %d", a.Status)
	}
}

func TestNonResourcePaths(t *testing.T) {
	s := start(t, testConfig(t))
	c := httpClient(t, s, true)
	for _, step := range []struct {
		method, path string
		status       int
		contentType  string
	}{
		{"GET", "/", 200, "application/json"},
		{"PUT", "/", 200, "application/json"},
		{"GET", "/index.html", 200, "application/json"},
		{"GET", "/version/", 200, "application/json"},
		{"POST", "/version", 405, "application/json"},
		{"HEAD", "/version", 405, "application/json"},
		{"GET", "/version/x", 404, "application/json"},
		{"GET", "/metrics", 200, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"},
		{"GET", "/metrics/slis", 200, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"},
		{"GET", "/metrics/none", 404, "text/plain; charset=utf-8"},
		{"GET", "/openapi", 404, "text/plain; charset=utf-8"},
		{"GET", "/API/v1", 404, "text/plain; charset=utf-8"},
		{"GET", "/apis/none.example.com/v1/things", 404, "text/plain; charset=utf-8"},
		{"GET", "/api/v1/none", 404, "application/json"},
		{"GET", "/apisfoo", 404, "text/plain; charset=utf-8"},
		{"GET", "/apis//v1/namespaces", 404, "text/plain; charset=utf-8"},
		{"GET", "/apis//v1/namespaces/default", 404, "text/plain; charset=utf-8"},
		{"GET", "/api/v1/", 200, "application/json"},
		{"GET", "/apis/apps/v1/", 200, "application/json"},
		{"GET", "/debug/pprof/", 200, "text/html; charset=utf-8"},
	} {
		a := apitest.Send(t, c, step.method, s.URL()+step.path, "")
		if a.Status != step.status || a.Header.Get("Content-Type") != step.contentType {
			t.Errorf(
				"%s %s: %d %s, want %d %s", step.method, step.path, a.Status, a.Header.Get("Content-Type"), step.status,
				step.contentType,
			)
		}
	}
}

func TestEveryListedPathIsServed(t *testing.T) {
	s := start(t, testConfig(t))
	c := httpClient(t, s, true)
	var index struct{ Paths []string }
	if err := json.Unmarshal([]byte(apitest.Send(t, c, "GET", s.URL()+"/", "").Body), &index); err != nil {
		t.Fatal(err)
	}
	for _, path := range index.Paths {
		switch path {
		case "/openapi/v3/", "/debug/pprof/profile", "/debug/pprof/trace": // a prefix, and two that take their time
			continue
		}
		if a := apitest.Send(t, c, "GET", s.URL()+path, ""); a.Status != http.StatusOK {
			t.Errorf("%s: %d", path, a.Status)
		}
	}
}

func TestRestartKeepsCertificates(t *testing.T) {
	config := testConfig(t)
	first := start(t, config)
	ca, admin := string(first.CA()), string(first.Admin().Cert)
	info, err := os.Stat(first.KubeconfigPath())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("kubeconfig: %v, mode %v", err, info.Mode())
	}
	stop(t, first)
	second := start(t, config)
	if string(second.CA()) != ca || string(second.Admin().Cert) != admin {
		t.Error("certificates changed on restart")
	}
	kubeconfig, err := os.ReadFile(second.KubeconfigPath())
	if err != nil || !strings.Contains(string(kubeconfig), second.URL()) {
		t.Errorf("the kubeconfig does not name %s: %v", second.URL(), err)
	}
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	running := start(t, testConfig(t))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	taken := running.listener.Addr().(*net.TCPAddr).Port
	for name, c := range map[string]struct {
		change func(*settings)
		want   string
	}{
		"port in use": {
			func(c *settings) { c.Serving.Port = taken },
			"cannot listen on 127.0.0.1:" + strconv.Itoa(taken) + ": address already in use; " +
				"stop the process that listens there, or choose another port with --secure-port",
		},
		"directory in use": {
			func(c *settings) { c.Storage.DataDir = running.config.Storage.DataDir },
			"the data directory " + running.config.Storage.DataDir + " is used by another process; " +
				"stop that, or name another directory with --data-dir",
		},
		"not a directory": {
			func(c *settings) { c.Storage.DataDir = file }, "cannot use the data directory " + file + " (--data-dir): not a directory",
		},
		"service range": {
			func(c *settings) { c.Network.ServiceClusterIPRange = "10.0.0.0/8" },
			"--service-cluster-ip-range: 10.0.0.0/8 is too large: the prefix must be /12 or longer",
		},
		"feature gate": {
			func(c *settings) { c.API.FeatureGates = []string{"NoSuch=true"} }, "unrecognized feature gate: NoSuch",
		},
		"storage": {
			func(c *settings) { c.Storage.Backend = "etcd3" }, `--storage must be embedded, memory, etcd or members, not "etcd3"`,
		},
		"half a pair": {
			func(c *settings) { c.Serving.TLS.CertFile = "x" }, "--tls-cert-file and --tls-private-key-file must be given together",
		},
	} {
		conf := testConfig(t)
		c.change(&conf)
		s, err := Start(context.Background(), conf.Config, conf.Options)
		if err == nil {
			stop(t, s)
		}
		if err == nil || config.CommandLine(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// servePods makes answer the handler of requests for pods.
func servePods(s *Server, answer http.HandlerFunc) {
	s.api.resources.Put(&directory.Resource{
		GVR: corev1.SchemeGroupVersion.WithResource("pods"), Source: directory.BuiltIn, Handler: answer,
	})
}

// TestStopOrder checks a stop while a request is in flight. Readiness fails, new connections are refused and
// watches end, and the request is finished.
func TestStopOrder(t *testing.T) {
	s := start(t, testConfig(t))
	entered, release, watchEnded := make(chan bool, 2), make(chan bool), make(chan error, 1)
	servePods(s, func(w http.ResponseWriter, r *http.Request) {
		entered <- true
		if request.InfoFrom(r.Context()).Verb == "watch" {
			<-r.Context().Done()
			watchEnded <- s.ending.notStopping(r.Context())
			return
		}
		<-release
		if err := r.Context().Err(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if _, err := s.stores.Main.Revision(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	c := httpClient(t, s, true)
	result := make(chan apitest.Answer, 2)
	for _, path := range []string{"/api/v1/pods?watch=true", "/api/v1/pods"} {
		go func() { result <- apitest.Send(t, c, "GET", s.URL()+path, "") }()
	}
	<-entered
	<-entered
	done := make(chan error, 1)
	go func() { done <- s.Stop(context.Background()) }()
	if err := <-watchEnded; err == nil {
		t.Error("watches end before readiness fails")
	}
	if a := <-result; a.Status != http.StatusOK {
		t.Errorf("watch: %d", a.Status)
	}
	if conn, err := net.Dial("tcp", s.listener.Addr().String()); err == nil {
		t.Error("the listener still takes connections", conn.Close())
	}
	select {
	case err := <-done:
		t.Errorf("stopped before the request in flight was answered: %v", err)
	default:
	}
	close(release)
	if a := <-result; a.Status != http.StatusOK {
		t.Errorf("request in flight: %d %s", a.Status, a.Body)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPanicIsAnswered(t *testing.T) {
	s := start(t, testConfig(t))
	servePods(s, func(http.ResponseWriter, *http.Request) { panic(errors.New("boom")) })
	c := httpClient(t, s, true)
	a := apitest.Send(t, c, "GET", s.URL()+"/api/v1/pods", "")
	if a.Status != http.StatusInternalServerError || strings.Contains(a.Body, "boom") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestMetricsCountRequests(t *testing.T) {
	s := start(t, testConfig(t))
	c := httpClient(t, s, true)
	for range 3 {
		apitest.Send(t, c, "GET", s.URL()+"/healthz", "")
	}
	apitest.Send(t, c, "GET", s.URL()+"/api/v1/made-up-by-a-client", "")
	body := apitest.Send(t, c, "GET", s.URL()+"/metrics", "").Body
	for _, want := range []string{
		`apiserver_request_total{code="200",component="",dry_run="",group="",resource="",scope="",` +
			`subresource="/healthz",verb="GET",version=""} 3`,
		"go_goroutines ", "process_resident_memory_bytes ", "kubernetes_build_info{", "apiserver_storage_size_bytes{",
		`apiserver_current_inflight_requests{request_kind="readOnly"}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(body, "made-up-by-a-client") {
		t.Error("a client can make labels")
	}
}
