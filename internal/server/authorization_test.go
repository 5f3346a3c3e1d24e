package server

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// cluster is a server with an administrator and the user dave, who has no permissions at first.
type cluster struct {
	*Server
	t     *testing.T
	admin *http.Client
	user  *http.Client
}

func newCluster(t *testing.T, c settings) *cluster {
	t.Helper()
	s := start(t, c)
	return &cluster{s, t, httpClient(t, s, true), httpClient(t, s, false)}
}

func (c *cluster) make(path, body string) {
	c.t.Helper()
	if a := apitest.Send(c.t, c.admin, http.MethodPost, c.URL()+path, body); a.Status != http.StatusCreated {
		c.t.Fatalf("POST %s: %d %s", path, a.Status, a.Body)
	}
}

// grant creates a Role with the given rules in a namespace, and binds dave to it.
func (c *cluster) grant(namespace, name, rules string) {
	c.t.Helper()
	path := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace
	c.make(path+"/roles", fmt.Sprintf(`{"metadata":{"name":%q},"rules":%s}`, name, rules))
	c.bind(namespace, name, "Role", name)
}

func (c *cluster) bind(namespace, name, kind, role string) {
	c.t.Helper()
	c.make("/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace+"/rolebindings", fmt.Sprintf(
		`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},`+
			`"subjects":[{"kind":"User","name":"dave"}]}`, name, kind, role))
}

func (c *cluster) namespace(name string) {
	c.t.Helper()
	c.make("/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
}

// dave sends a request as dave. The path is sent unchanged.
func (c *cluster) dave(method, path string, headers ...string) apitest.Answer {
	c.t.Helper()
	r, err := http.NewRequest(method, c.URL(), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	path, query, _ := strings.Cut(path, "?")
	r.URL = &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Opaque: path, RawQuery: query}
	r.Header.Set("Authorization", "Bearer davetoken")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w, err := c.user.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return apitest.Answer{Status: w.StatusCode, Header: w.Header, Body: string(text)}
}

// becomes waits until a request of dave is answered with a status, because changed roles take effect a little later.
func (c *cluster) becomes(status int, method, path string) {
	c.t.Helper()
	wait.Seen(c.t, fmt.Sprintf("the status %d of %s %s", status, method, path), func() (bool, string) {
		a := c.dave(method, path)
		return a.Status == status, fmt.Sprint(a.Status, " ", a.Body)
	})
}

func TestRolesCountWhileTheyAreThere(t *testing.T) {
	c := newCluster(t, testConfig(t))
	c.namespace("mine")
	const path = "/api/v1/namespaces/mine/configmaps"
	a := c.dave(http.MethodGet, path)
	want := `configmaps is forbidden: User "dave" cannot list resource "configmaps" in API group "" in the namespace ` +
		`"mine"`
	if a.Status != http.StatusForbidden || a.Message() != want || a.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %s %v", a.Status, a.Body, a.Header)
	}
	c.grant("mine", "reader", `[{"apiGroups":[""],"resources":["configmaps"],"verbs":["list"]}]`)
	c.becomes(http.StatusOK, http.MethodGet, path)
	if a := apitest.Send(
		t, c.admin, http.MethodDelete, c.URL()+"/apis/rbac.authorization.k8s.io/v1/namespaces/mine/rolebindings/reader", "",
	); a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	c.becomes(http.StatusForbidden, http.MethodGet, path)
}

// TestPathsDoNotLeadElsewhere checks that a user of one namespace cannot reach objects of another one by unusual
// paths (CVE-2022-3162 and similar ones).
func TestPathsDoNotLeadElsewhere(t *testing.T) {
	c := newCluster(t, testConfig(t))
	c.namespace("mine")
	c.namespace("other")
	c.make("/api/v1/namespaces/other/secrets", `{"metadata":{"name":"s"},"stringData":{"k":"hidden"}}`)
	c.grant("mine", "all", `[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]`)
	c.becomes(http.StatusOK, http.MethodGet, "/api/v1/namespaces/mine/secrets")
	for _, path := range []string{
		"/api/v1/namespaces/mine/../other/secrets/s", "/api/v1/namespaces/mine/secrets/../../other/secrets/s",
		"/api/v1/namespaces/mine%2f..%2fother/secrets/s", "/api/v1/namespaces/mine/secrets/..%2f..%2fother%2fsecrets%2fs",
		"/api/v1/namespaces/mine/secrets/..%2Fother%2Fs", "/api/v1/namespaces/mine/secrets/%2e%2e",
		"/api/v1/namespaces/mine/secrets/.", "/api/v1/namespaces/mine/secrets/..",
		"/api/v1/namespaces/mine/../other/secrets", "/api/v1/namespaces//other/secrets", "/api/v1/namespaces/./other/secrets",
		"/api/v1/namespaces/mine/secrets?fieldSelector=metadata.namespace%3Dother",
		"/api/v1/watch/namespaces/other/secrets?timeoutSeconds=1",
	} {
		if a := c.dave(http.MethodGet, path); strings.Contains(a.Body, "aGlkZGVu") ||
			a.Status == http.StatusOK && !strings.Contains(a.Body, `"items":[]`) {
			t.Errorf("GET %s: %d %s", path, a.Status, a.Body)
		}
	}
	for _, name := range []string{"..", ".", "a/b", "%2e", "../other/x"} {
		body := fmt.Sprintf(`{"metadata":{"name":%q}}`, name)
		a := apitest.Send(
			t, c.user, http.MethodPost, c.URL()+"/apis/rbac.authorization.k8s.io/v1/namespaces/mine/roles", body,
			"Authorization", "Bearer davetoken",
		)
		if a.Status/100 == 2 {
			t.Errorf("a role named %q: %d %s", name, a.Status, a.Body)
		}
	}
}

// TestClusterScopedThroughANamespace (CVE-2019-11247) checks that a user with all permissions in a namespace cannot
// reach cluster-scoped resources by a path with that namespace.
func TestClusterScopedThroughANamespace(t *testing.T) {
	c := newCluster(t, testConfig(t))
	c.namespace("mine")
	c.bind("mine", "all", "ClusterRole", "cluster-admin")
	c.becomes(http.StatusOK, http.MethodGet, "/api/v1/namespaces/mine/secrets")
	c.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Cluster",
		"names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	const things = "/apis/example.com/v1/things"
	wait.Until(t, "the resource things to be served", func() bool {
		return apitest.Send(t, c.admin, http.MethodGet, c.URL()+things, "").Status == http.StatusOK
	})
	c.make(things, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"x"}}`)
	for _, path := range []string{
		"/apis/example.com/v1/namespaces/mine/things/x", "/apis/example.com/v1/namespaces/mine/things",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/mine/clusterroles/cluster-admin",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/mine/clusterroles",
		"/api/v1/namespaces/mine/nodes", "/api/v1/namespaces/mine/persistentvolumes/x",
		"/apis/apiextensions.k8s.io/v1/namespaces/mine/customresourcedefinitions",
	} {
		if a := c.dave(http.MethodGet, path); a.Status != http.StatusNotFound {
			t.Errorf("GET %s: %d %s", path, a.Status, a.Body)
		}
	}
	if a := c.dave(http.MethodGet, "/apis/rbac.authorization.k8s.io/v1/clusterroles"); a.Status != http.StatusForbidden {
		t.Errorf("at the cluster scope: %d", a.Status)
	}
}

func TestImpersonationNeedsPermission(t *testing.T) {
	c := newCluster(t, testConfig(t))
	c.make("/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"imp"},"rules":[
		{"apiGroups":[""],"resources":["users"],"resourceNames":["jane"],"verbs":["impersonate"]},
		{"apiGroups":[""],"resources":["groups"],"resourceNames":["devs"],"verbs":["impersonate"]}]}`)
	c.make("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"imp"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"imp"},
		"subjects":[{"kind":"User","name":"dave"}]}`)
	as := func(headers ...string) apitest.Answer {
		return c.dave(http.MethodGet, "/api/v1/namespaces/kube-system/secrets", headers...)
	}
	wait.Seen(t, "the permission to impersonate jane", func() (bool, string) {
		body := as("Impersonate-User", "jane").Body
		return strings.Contains(body, `User \"jane\" cannot list`), body
	})
	for _, headers := range [][]string{
		{"Impersonate-User", "john"}, {"Impersonate-User", "system:admin"},
		{"Impersonate-User", "jane", "Impersonate-Group", "system:masters"},
		{"Impersonate-User", "jane", "Impersonate-Group", "devs", "Impersonate-Group", "system:masters"},
		{"Impersonate-User", "jane", "Impersonate-Extra-Scopes", "all"}, {"Impersonate-User", "jane", "Impersonate-Uid", "1"},
		{"impersonate-user", "system:serviceaccount:kube-system:clusterrole-aggregation-controller"},
	} {
		if a := as(headers...); a.Status != http.StatusForbidden ||
			!strings.Contains(a.Body, `User \"dave\" cannot impersonate`) {
			t.Errorf("%q: %d %s", headers, a.Status, a.Body)
		}
	}
	if a := as(
		"Impersonate-User", "jane", "Impersonate-Group", "devs",
	); !strings.Contains(a.Body, `User \"jane\" cannot list`) {
		t.Errorf("what is allowed: %d %s", a.Status, a.Body)
	}
	if a := as("Impersonate-Group", "devs"); a.Status != http.StatusBadRequest {
		t.Errorf("a group alone: %d %s", a.Status, a.Body)
	}
}

func TestExecNeedsCreate(t *testing.T) {
	c := newCluster(t, testConfig(t))
	c.namespace("mine")
	c.grant(
		"mine", "get",
		`[{"apiGroups":[""],"resources":["pods/exec","pods/attach","pods/portforward","pods/log"],"verbs":["get"]}]`,
	)
	c.becomes(http.StatusNotFound, http.MethodGet, "/api/v1/namespaces/mine/pods/p/log")
	for _, sub := range []string{"exec?command=ls", "attach", "portforward"} {
		a := c.dave(http.MethodGet, "/api/v1/namespaces/mine/pods/p/"+sub)
		if a.Status != http.StatusForbidden || !strings.HasPrefix(a.Message(), `pods "p" is forbidden`) {
			t.Errorf("GET %s: %d %s", sub, a.Status, a.Body)
		}
	}
}

func TestAPutThatCreatesNeedsCreate(t *testing.T) {
	c := newCluster(t, testConfig(t))
	c.namespace("mine")
	c.grant("mine", "update", `[{"apiGroups":["coordination.k8s.io"],"resources":["leases"],"verbs":["update","get"]}]`)
	const path = "/apis/coordination.k8s.io/v1/namespaces/mine/leases/l"
	c.becomes(http.StatusNotFound, http.MethodGet, path)
	a := apitest.Send(
		t, c.user, http.MethodPut, c.URL()+path, `{"metadata":{"name":"l"}}`, "Authorization", "Bearer davetoken",
	)
	if a.Status != http.StatusForbidden || !strings.Contains(a.Message(), `cannot create resource "leases"`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestGrantsAreGuardedOverHTTP(t *testing.T) {
	c := newCluster(t, testConfig(t))
	c.namespace("mine")
	c.grant(
		"mine", "roles",
		`[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles","rolebindings"],"verbs":["create","get"]}]`,
	)
	c.becomes(http.StatusNotFound, http.MethodGet, "/apis/rbac.authorization.k8s.io/v1/namespaces/mine/roles/none")
	post := func(resource, body string) apitest.Answer {
		return apitest.Send(
			t, c.user, http.MethodPost, c.URL()+"/apis/rbac.authorization.k8s.io/v1/namespaces/mine/"+resource, body,
			"Authorization", "Bearer davetoken",
		)
	}
	const lacks = "is attempting to grant RBAC permissions not currently held"
	if a := post(
		"roles", `{"metadata":{"name":"x"},"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}`,
	); a.Status != http.StatusForbidden || !strings.Contains(a.Message(), lacks) {
		t.Errorf("a role: %d %s", a.Status, a.Body)
	}
	if a := post(
		"rolebindings",
		`{"metadata":{"name":"x"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",`+
			`"name":"cluster-admin"},"subjects":[{"kind":"User","name":"dave"}]}`,
	); a.Status != http.StatusForbidden || !strings.Contains(a.Message(), lacks) {
		t.Errorf("a binding: %d %s", a.Status, a.Body)
	}
	// An object that cannot be in this namespace is rejected before its permissions are checked there.
	if a := post(
		"roles",
		`{"metadata":{"name":"x","namespace":"other"},"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}`,
	); a.Status != http.StatusBadRequest {
		t.Errorf("a role of another namespace: %d %s", a.Status, a.Body)
	}
}

func TestModes(t *testing.T) {
	const path = "/api/v1/namespaces/default/configmaps"
	for mode, want := range map[string]string{
		config.ModeAlwaysAllow: `"kind":"ConfigMapList"`, config.ModeAlwaysDeny: "Everything is forbidden.", config.ModeABAC: "No policy matched.",
	} {
		t.Run(mode, func(t *testing.T) {
			conf := testConfig(t)
			conf.Authorization.Modes = []string{mode}
			if mode == config.ModeABAC {
				conf.Authorization.PolicyFile = filepath.Join(t.TempDir(), "policy")
				if err := os.WriteFile(
					conf.Authorization.PolicyFile, []byte(`{"user":"dave","readonly":true,"resource":"secrets"}`), 0o600,
				); err != nil {
					t.Fatal(err)
				}
			}
			c := newCluster(t, conf)
			if a := c.dave(http.MethodGet, path); !strings.Contains(
				strings.ReplaceAll(a.Body, " ", ""), strings.ReplaceAll(want, " ", ""),
			) {
				t.Errorf("%d %s, want %s", a.Status, a.Body, want)
			}
			if a := apitest.Send(t, c.admin, http.MethodGet, c.URL()+path, ""); a.Status != http.StatusOK {
				t.Errorf("the administrator: %d %s", a.Status, a.Body)
			}
		})
	}
}

// TestAnonymousRequestsWithAnAuthorizationFile checks that the mode AlwaysAllow disables anonymous requests, but
// not if a configuration file replaces the modes.
func TestAnonymousRequestsWithAnAuthorizationFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "authorization.yaml")
	const rbac = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- {type: RBAC, name: rbac}\n"
	if err := os.WriteFile(file, []byte(rbac), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"": http.StatusUnauthorized, file: http.StatusOK} {
		conf := testConfig(t)
		conf.Authorization.Modes, conf.Authorization.ConfigFile = []string{config.ModeAlwaysAllow}, name
		s := start(t, conf)
		if a := apitest.Send(t, httpClient(t, s, false), http.MethodGet, s.URL()+"/version", ""); a.Status != want {
			t.Errorf("an anonymous request with the file %q: %d, want %d", name, a.Status, want)
		}
	}
}

// TestWebhookAuthorizesConditionally has a webhook authorizer with a match condition. The webhook allows pods.
func TestWebhookAuthorizesConditionally(t *testing.T) {
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		allowed := strings.Contains(string(text), `"resource":"pods"`)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(
			w,
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":%v,`+
				`"reason":"as the webhook says"}}`,
			allowed,
		)
	}))
	defer hook.Close()
	dir := t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"hook","user":""}}],
		"clusters":[{"name":"hook","cluster":{"server":%q,"certificate-authority-data":%q}}]}`, hook.URL, base64.StdEncoding.EncodeToString(authority))
	if err := os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := testConfig(t)
	conf.Authorization.ConfigFile = filepath.Join(dir, "authorization.yaml")
	text := fmt.Sprintf(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthorizationConfiguration","authorizers":[
		{"type":"Webhook","name":"hook","webhook":{"timeout":"3s","subjectAccessReviewVersion":"v1",
			"matchConditionSubjectAccessReviewVersion":"v1","failurePolicy":"Deny",
		"connectionInfo":{"type":"KubeConfigFile","kubeConfigFile":%q},
			"matchConditions":[{"expression":"request.user == 'dave'"}]}},
		{"type":"RBAC","name":"rbac"}]}`, filepath.Join(dir, "kubeconfig"))
	if err := os.WriteFile(conf.Authorization.ConfigFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, conf)
	if a := c.dave(http.MethodGet, "/api/v1/pods"); a.Status != http.StatusOK {
		t.Errorf("pods: %d %s", a.Status, a.Body)
	}
	if a := c.dave(http.MethodGet, "/api/v1/secrets"); a.Status != http.StatusForbidden ||
		!strings.HasSuffix(a.Message(), ": as the webhook says") {
		t.Errorf("secrets: %d %s", a.Status, a.Body)
	}
	if a := apitest.Send(t, c.user, http.MethodGet, c.URL()+"/api/v1/pods", ""); a.Status != http.StatusForbidden ||
		strings.Contains(a.Message(), "webhook") {
		t.Errorf("somebody that the condition leaves out: %d %s", a.Status, a.Body)
	}
	hook.Close()
	if a := c.dave(http.MethodGet, "/api/v1/nodes"); a.Status/100 == 2 {
		t.Errorf("without the webhook: %d %s", a.Status, a.Body)
	}
	if a := c.dave(http.MethodGet, "/api/v1/pods"); a.Status != http.StatusOK {
		t.Errorf("what is remembered: %d %s", a.Status, a.Body)
	}
}

func TestInvalidAuthorizationFlags(t *testing.T) {
	given := func(name string) bool { return name == "authorization-mode" }
	for want, change := range map[string]func(*settings){
		"at least one authorization-mode must be passed": func(c *settings) { c.Authorization.Modes = nil },
		`authorization-mode "Robot" is not a valid mode`: func(c *settings) {
			c.Authorization.Modes = []string{"Robot"}
		},
		"has mode specified more than once": func(c *settings) {
			c.Authorization.Modes = []string{config.ModeRBAC, config.ModeRBAC}
		},
		"authorization-mode ABAC's authorization policy file not passed": func(c *settings) {
			c.Authorization.Modes = []string{config.ModeABAC}
		},
		"cannot specify --authorization-policy-file without mode ABAC": func(c *settings) {
			c.Authorization.PolicyFile = "x"
		},
		"authorization-mode Webhook's authorization config file not": func(c *settings) {
			c.Authorization.Modes = []string{config.ModeWebhook}
		},
		"--authorization-webhook-config-file without mode Webhook": func(c *settings) {
			c.Authorization.Webhook.ConfigFile = "x"
		},
		"--authorization-config can not be specified when --authorizatio": func(c *settings) {
			c.Authorization.ConfigFile, c.FlagGiven = "x", given
		},
	} {
		conf := testConfig(t)
		change(&conf)
		s, err := Start(t.Context(), conf.Config, conf.Options)
		if err == nil {
			stop(t, s)
		}
		if err == nil || !strings.Contains(config.CommandLine(err), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestDecisionsAreCounted(t *testing.T) {
	c := newCluster(t, testConfig(t))
	c.dave(http.MethodGet, "/api/v1/nodes")
	c.dave(http.MethodGet, "/api")
	c.dave(http.MethodGet, "/api", "Impersonate-User", "jane")
	a := apitest.Send(t, c.admin, http.MethodGet, c.URL()+"/metrics", "")
	for _, want := range []string{
		`apiserver_authorization_decisions_total{decision="allowed",name="rbac",type="RBAC"} 1`,
		`authorization_attempts_total{result="no-opinion"} 1`, `authorization_duration_seconds_count{result="no-opinion"} 1`,
		`apiserver_impersonation_attempts_total{decision="denied",mode=""} 1`,
		`apiserver_impersonation_authorization_attempts_total{decision="denied",mode="legacy"} 1`,
	} {
		if !strings.Contains(a.Body, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}
