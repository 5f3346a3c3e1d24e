package console

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// journey is something that people do with the console.
type journey struct {
	name string
	do   func(*testing.T, *server, *page)
}

// anywhere are the journeys that need nothing but an API server: no history, no controllers, and no node.
var anywhere = []journey{
	{"first use", firstUse}, {"palette", palette}, {"filters", filters}, {"only what is failing", failing}, {"sort", sortColumns},
	{"all columns", allColumns}, {"live", live}, {"create documents", createDocuments}, {"apply conflict", applyConflict},
	{"edit", edit}, {"edit refused", editRefused}, {"edit conflict", editConflict}, {"owners of fields", fieldOwners},
	{"conditions and events", conditionsAndEvents}, {"related", related}, {"reference", reference}, {"secret", secret},
	{"delete", deleteProxied}, {"scale", scale}, {"restart", restart}, {"cordon", cordon}, {"suspend", suspend},
	{"what may I", whatMayI}, {"what may another", whatMayAnother}, {"may I", question},
	{"definition", definition}, {"custom resource", customResource},
	{"server", serverProxied}, {"extensions", extensionsProxied}, {"long watch", longWatch},
}

// TestProxiedKubeAPIServer does what people do with the console at kube-apiserver, through `keelson console`.
func TestProxiedKubeAPIServer(t *testing.T) {
	travels(t, startKubeAPIServer(t), slices.Concat(anywhere, []journey{{"no history", noHistory}}))
}

// TestProxiedKeelson does the same at Keelson, with its history.
func TestProxiedKeelson(t *testing.T) {
	travels(t, start(t, "--feature-gates=ExtendWebSocketsToKubelet=true"), slices.Concat(anywhere, []journey{
		{"compare versions", compareVersions}, {"blame", blame}, {"revert", revert}, {"undelete", undelete}, {"timeline", timeline},
		{"stuck", stuck}, {"logs", logs}, {"terminal", terminal},
	}))
}

// travels does journeys through a proxy in front of a server.
func travels(t *testing.T, s *server, journeys []journey) {
	t.Helper()
	c := startProxy(t, kubeconfig(t, s.url, token))
	s.proxy = c.url
	b := browse(t, 1280, 800)
	b.enter(c.link)
	for _, j := range journeys {
		t.Run(j.name, func(t *testing.T) {
			p := b.tab(t)
			j.do(t, s, p)
			p.clean()
		})
	}
}

// noHistory looks for the parts of the console that only Keelson has.
func noHistory(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "no-history")
	s.create(t, core+"/configmaps", configMap("plain", "a: b"))
	in(s, p)
	p.sees("Overview", s.url)
	p.misses("What changed")
	p.misses("what changed in the last hour")
	p.misses("Log out")
	p.open("#/r/configmaps?ns=no-history")
	p.sees("plain", "live")
	p.misses("What changed")
	p.open("#/o/configmaps/no-history/plain")
	p.sees("Related", "Events")
	p.misses("History")
	p.misses("Why is it stuck")
	for _, hash := range []string{"#/o/configmaps/no-history/plain/history", "#/o/configmaps/no-history/plain/why"} {
		p.open(hash) // an address from elsewhere
		p.sees("ConfigMap", "plain")
	}
	p.open("#/timeline")
	p.sees("The server has no history")
	p.open("#/o/configmaps/no-history/missing")
	p.sees("404")
	p.misses("Look at its history")
}

// deleteProxied deletes an object that has no dependents, which needs no controller.
func deleteProxied(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "deleting")
	s.create(t, core+"/configmaps", configMap("doomed", "a: b"))
	in(s, p)
	p.open("#/o/configmaps/deleting/doomed")
	p.sees("doomed")
	p.click("Delete")
	p.sees("What it owns")
	p.clickOn("Delete", `document.querySelector('dialog button.danger')`)
	p.sees("Deletion of doomed is asked for", "gone")
	s.missing(t, core+"/configmaps/doomed")
}

// serverProxied looks at the figures of the server.
func serverProxied(_ *testing.T, s *server, p *page) {
	in(s, p)
	p.click("Server")
	p.sees("Ready", "yes", "Processor time", "Most requests", "Slowest requests", "Requests that wait", "v1.37.2", s.url)
}

// extensionsProxied looks at a webhook and at an extension API server that does not exist.
func extensionsProxied(t *testing.T, s *server, p *page) {
	s.create(t, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: proxied-hook}
webhooks:
- name: hook.example.com
  clientConfig: {url: "https://127.0.0.1:1/"}
  failurePolicy: Ignore
  sideEffects: None
  admissionReviewVersions: [v1]
  rules: [{apiGroups: [none.example.com], apiVersions: [v1], operations: [CREATE], resources: [nothing]}]
`)
	s.create(t, "/apis/apiregistration.k8s.io/v1/apiservices", `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.absent.example.com}
spec: {group: absent.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 15, insecureSkipTLSVerify: true, service: {name: absent, namespace: default}}
`)
	in(s, p)
	p.open("#/extensions")
	p.sees("hook.example.com", "validating", "v1.absent.example.com", "default/absent")
	p.click("Read again")
	p.sees("v1.absent.example.com")
	s.call(t, http.MethodDelete, "/apis/apiregistration.k8s.io/v1/apiservices/v1.absent.example.com", "application/json", "{}")
}

// longWatch follows a list in which there are many changes, then none for some seconds, then many again.
func longWatch(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "watched")
	in(s, p)
	p.open("#/r/configmaps?ns=watched&q=item")
	p.sees("live")
	for i := range 100 {
		s.create(t, core+"/configmaps", configMap(fmt.Sprintf("item-%d", i), "a: b"))
	}
	p.until("all are there", `document.querySelector('[data-testid=count]').innerText.startsWith('100')`)
	time.Sleep(3 * time.Second)
	for i := range 99 {
		s.call(t, http.MethodDelete, fmt.Sprintf("%s/configmaps/item-%d", core, i), "application/json", "{}")
	}
	p.rows("item-99")
	p.sees("live")
}

// kubernetesProgram returns the path of a program that the tests in test/e2e use too. It skips the test if there is none.
func kubernetesProgram(t testing.TB, name string) string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(home, ".cache", "keelson-e2e")
	for _, path := range []string{filepath.Join(dir, "v1.37.2", name), filepath.Join(dir, name)} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Skipf("there is no %s in %s: `make -C test/e2e %[1]s` makes it", name, dir)
	return ""
}

// startKubeAPIServer starts etcd and kube-apiserver, without controllers: Pods need no ServiceAccount.
func startKubeAPIServer(t testing.TB) *server {
	t.Helper()
	apiserver, etcd := kubernetesProgram(t, "kube-apiserver"), kubernetesProgram(t, "etcd")
	dir := t.TempDir()
	tokens, key := filepath.Join(dir, "tokens"), filepath.Join(dir, "key")
	if err := os.WriteFile(tokens, []byte(token+",admin,1,system:masters\nviewer,viewer,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(path string, args ...string) {
		t.Helper()
		out, err := os.Create(filepath.Join(dir, filepath.Base(path)+".log"))
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(path, args...)
		c.Stdout, c.Stderr = out, out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
			_ = out.Close()
			if t.Failed() {
				text, _ := os.ReadFile(out.Name())
				t.Logf("the end of the log of %s:\n%s", path, text[max(0, len(text)-3000):])
			}
		})
	}
	client, peer, port := freePort(t), freePort(t), freePort(t)
	url := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	run(etcd, "--data-dir", filepath.Join(dir, "etcd"), "--log-level", "error", "--unsafe-no-fsync",
		"--listen-client-urls", url(client), "--advertise-client-urls", url(client), "--listen-peer-urls", url(peer),
		"--initial-advertise-peer-urls", url(peer), "--initial-cluster", "default="+url(peer))
	run(apiserver, "--etcd-servers", url(client), "--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(port),
		"--cert-dir", filepath.Join(dir, "certs"), "--token-auth-file", tokens, "--authorization-mode", "Node,RBAC",
		"--service-account-issuer", "https://k.local", "--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--service-cluster-ip-range", "10.0.0.0/16", "--endpoint-reconciler-type", "none", "--disable-admission-plugins", "ServiceAccount")
	s := &server{
		url: strings.Replace(url(port), "http:", "https:", 1), dir: dir, token: token,
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}},
	}
	ready := func(path string) bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
		if err != nil {
			return false
		}
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := s.client.Do(r)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
	for end := time.Now().Add(2 * time.Minute); !ready("/readyz") || !ready("/api/v1/namespaces/default"); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("kube-apiserver did not get ready")
		}
	}
	return s
}
