package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"

	"github.com/keelson-dev/keelson/internal/server/certs"
)

// peerCluster is an etcd on which API servers know each other.
type peerCluster struct {
	t     *testing.T
	dir   string
	etcd  *etcdServer
	files []string // the flags for certificates
	key   string
}

func newPeerCluster(t *testing.T) *peerCluster {
	t.Helper()
	dir := logDir(t)
	set, err := certs.Ensure(certs.Options{
		Serving: true, FrontProxy: true, Names: []string{"kubernetes.default.svc"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &peerCluster{t: t, dir: dir, etcd: startEtcd(t, dir), key: signingKey(t, dir)}
	for _, f := range []struct {
		flag    string
		content []byte
	}{
		{"tls-cert-file", set.Serving.Cert}, {"tls-private-key-file", set.Serving.Key}, {"peer-ca-file", set.CA},
		{"proxy-client-cert-file", set.FrontProxy.Cert}, {"proxy-client-key-file", set.FrontProxy.Key},
		{"requestheader-client-ca-file", set.FrontProxyCA},
	} {
		path := filepath.Join(dir, f.flag+".pem")
		if err := os.WriteFile(path, f.content, 0o600); err != nil {
			t.Fatal(err)
		}
		c.files = append(c.files, "--"+f.flag, path)
	}
	return c
}

// serve starts a server on a machine of this name: the name of the Lease of an API server is made from it.
func (c *peerCluster) serve(name, host string, port int, args ...string) *apiServer {
	c.t.Helper()
	s := newAPIServer(name, port)
	command := []string{"--uts", "sh", "-c", `hostname "$0" && exec "$@"`, host, program(c.t, name)}
	if os.Geteuid() != 0 {
		command = append([]string{"--user", "--map-root-user"}, command...)
	}
	if name == "keelson" {
		command = append(command, "kube-apiserver")
	}
	command = append(command, "--etcd-servers", c.etcd.url, "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(port),
		"--cert-dir", filepath.Join(c.dir, host), "--token-auth-file", tokensFile(c.t, c.dir),
		"--authorization-mode", "Node,RBAC", "--service-cluster-ip-range", "10.0.0.0/16",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", c.key,
		"--service-account-signing-key-file", c.key, "--endpoint-reconciler-type", "none",
		"--advertise-address", "127.0.0.1", // kube-apiserver 1.36 takes no notice of --peer-advertise-ip
		"--requestheader-allowed-names", certs.FrontProxyName, "--requestheader-username-headers", "X-Remote-User",
		"--requestheader-uid-headers", "X-Remote-Uid", "--requestheader-group-headers", "X-Remote-Group",
		"--requestheader-extra-headers-prefix", "X-Remote-Extra-")
	s.process = start(c.t, filepath.Join(c.dir, host+".log"), nil, "unshare", slices.Concat(command, c.files, args)...)
	s.awaitReady(c.t)
	return s
}

// peerAnswer is a response.
type peerAnswer struct {
	status            int
	contentType, body string
	header            http.Header
}

func (s *apiServer) ask(t *testing.T, method, path, body string, header ...string) peerAnswer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := s.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return peerAnswer{response.StatusCode, response.Header.Get("Content-Type"), string(text), response.Header}
}

// awaitAnswer waits for a status, and for a part of the body.
func (s *apiServer) awaitAnswer(t *testing.T, path string, status int, part string) (got peerAnswer) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprintf("%s answers %s with %d %s", s.name, path, status, part), func(context.Context) error {
		if got = s.ask(t, http.MethodGet, path, ""); got.status != status || !strings.Contains(got.body, part) {
			return fmt.Errorf("%d %s", got.status, got.body)
		}
		return nil
	})
	return got
}

// resources returns the aggregated document of /apis.
func (s *apiServer) resources(t *testing.T, profile string) (list apidiscovery.APIGroupDiscoveryList) {
	t.Helper()
	got := s.ask(t, http.MethodGet, "/apis", "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"+profile)
	if err := json.Unmarshal([]byte(got.body), &list); err != nil {
		t.Fatal(err, got)
	}
	return list
}

func groupVersions(list apidiscovery.APIGroupDiscoveryList) (out []string) {
	for _, g := range list.Items {
		for _, v := range g.Versions {
			out = append(out, g.Name+"/"+v.Version)
		}
	}
	return out
}

// without removes what differs between two runs from an error.
func without(body string) string {
	return regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(body, "ADDRESS")
}

// TestPeersOfKubeAPIServer runs kube-apiserver and Keelson on one etcd; each serves something that the other does not. Requests are
// answered by the one that can, discovery shows the same on both, and both say the same where a server is missing.
func TestPeersOfKubeAPIServer(t *testing.T) {
	const (
		jobs       = "/apis/batch/v1/namespaces/default/jobs"            // of Keelson alone
		candidates = "/apis/coordination.k8s.io/v1beta1/leasecandidates" // of kube-apiserver alone
		review     = "/apis/authentication.k8s.io/v1/selfsubjectreviews" // of Keelson alone
		access     = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	)
	c := newPeerCluster(t)
	kubePort, keelsonPort := freePort(t), freePort(t)
	kubeFlags := []string{"--runtime-config", "batch/v1=false,authentication.k8s.io/v1=false,coordination.k8s.io/v1beta1=true"}
	keelsonFlags := []string{"--runtime-config", "authorization.k8s.io/v1=false,resource.k8s.io/v1beta2=true"}
	kube := c.serve("kube-apiserver", "machine-1", kubePort, kubeFlags...)
	keelson := c.serve("keelson", "machine-2", keelsonPort, keelsonFlags...)
	both := []*apiServer{kube, keelson}
	for _, path := range []string{jobs, candidates, "/apis/resource.k8s.io/v1beta2/deviceclasses"} {
		for _, s := range both {
			s.awaitAnswer(t, path, http.StatusOK, "")
		}
	}

	t.Run("write", func(t *testing.T) {
		got := kube.ask(t, http.MethodPost, jobs, `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"one"},
			"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`)
		if got.status != http.StatusCreated {
			t.Error(got)
		}
		keelson.awaitAnswer(t, jobs+"/one", http.StatusOK, `"name":"one"`)
	})
	t.Run("user", func(t *testing.T) {
		const bob = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
		got := kube.ask(t, http.MethodPost, review, bob, "Impersonate-User", "bob", "Impersonate-Group", "dev",
			"Impersonate-Uid", "7", "Impersonate-Extra-acme.com%2fproject", "p")
		for _, part := range []string{
			`"username":"bob"`, `"uid":"7"`, `"groups":["dev","system:authenticated"]`, `"acme.com/project":["p"]`,
		} {
			if got.status != http.StatusCreated || !strings.Contains(got.body, part) {
				t.Errorf("%s: %+v", part, got)
			}
		}
		const may = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview",
			"spec":{"resourceAttributes":{"verb":"delete","resource":"nodes"}}}`
		if got := keelson.ask(t, http.MethodPost, access, may); !strings.Contains(got.body, `"allowed":true`) {
			t.Errorf("the administrator: %+v", got)
		}
		if got := keelson.ask(t, http.MethodPost, access, may, "Impersonate-User", "bob"); got.status != http.StatusCreated ||
			!strings.Contains(got.body, `"allowed":false`) {
			t.Errorf("bob: %+v", got)
		}
	})
	t.Run("never twice", func(t *testing.T) {
		for path, s := range map[string]*apiServer{jobs: kube, candidates: keelson} {
			if got := s.ask(t, http.MethodGet, path, "", "X-Kubernetes-Peer-Proxied", "true"); got.status != http.StatusNotFound {
				t.Errorf("%s: %+v", s.name, got)
			}
		}
	})
	t.Run("discovery", func(t *testing.T) {
		want, got := kube.resources(t, ""), keelson.resources(t, "")
		if !slices.Equal(groupVersions(got), groupVersions(want)) {
			t.Errorf("groups and versions are\n%q, of kube-apiserver\n%q", groupVersions(got), groupVersions(want))
		}
		for i := range got.Items {
			if !reflect.DeepEqual(got.Items[i], want.Items[i]) {
				t.Errorf("group %s is\n%+v, of kube-apiserver\n%+v", got.Items[i].Name, got.Items[i], want.Items[i])
			}
		}
		for version, of := range map[string]*apiServer{"batch/v1": keelson, "coordination.k8s.io/v1beta1": kube} {
			for _, s := range both {
				alone := groupVersions(s.resources(t, ";profile=nopeer"))
				if slices.Contains(alone, version) != (s == of) || !slices.Contains(groupVersions(want), version) {
					t.Errorf("%s alone: %q", s.name, alone)
				}
			}
		}
	})
	t.Run("health", func(t *testing.T) {
		hooks := func(s *apiServer) (out []string) {
			for line := range strings.Lines(s.ask(t, http.MethodGet, "/readyz?verbose", "").body) {
				if regexp.MustCompile(`peer|mixed|local-disc`).MatchString(line) {
					out = append(out, strings.TrimSpace(line))
				}
			}
			slices.Sort(out)
			return out
		}
		if want, got := hooks(kube), hooks(keelson); !slices.Equal(got, want) || len(want) == 0 {
			t.Errorf("%q, want %q", got, want)
		}
	})
	t.Run("metrics", func(t *testing.T) {
		for _, name := range []string{"apiserver_rerouted_request_total", "aggregator_discovery_nopeer_requests_total",
			"aggregator_discovery_peer_aggregated_cache_hits_total", "aggregator_discovery_peer_aggregated_cache_misses_total"} {
			describe := func(s *apiServer) string {
				found := regexp.MustCompile(`(?m)^# (HELP|TYPE) `+name+` .*$`).FindAllString(s.ask(t, http.MethodGet, "/metrics", "").body, -1)
				return strings.Join(found, "\n")
			}
			if want, got := describe(kube), describe(keelson); got != want || want == "" {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})

	// One of the two is killed, first Keelson, then kube-apiserver. What the other one says is the same.
	type gone struct{ refused, unresolved peerAnswer }
	killed := func(victim, other *apiServer, path string) (g gone) {
		victim.kill()
		g.refused = other.ask(t, http.MethodGet, path, "")
		g.unresolved = other.awaitAnswer(t, path, http.StatusServiceUnavailable, `"kind":"Status"`)
		return g
	}
	ofKube := killed(keelson, kube, jobs)
	keelson = c.serve("keelson", "machine-2", keelsonPort, keelsonFlags...)
	kube.awaitAnswer(t, jobs, http.StatusOK, "")
	keelson.awaitAnswer(t, candidates, http.StatusOK, "")
	ofKeelson := killed(kube, keelson, candidates)
	for name, pair := range map[string][2]peerAnswer{
		"refused": {ofKeelson.refused, ofKube.refused}, "unresolved": {ofKeelson.unresolved, ofKube.unresolved},
	} {
		got, want := pair[0], pair[1]
		if got.status != want.status || got.contentType != want.contentType || without(got.body) != without(want.body) {
			t.Errorf("%s: %d %s %s, of kube-apiserver %d %s %s",
				name, got.status, got.contentType, got.body, want.status, want.contentType, want.body)
		}
		t.Logf("%s: %d %s %s", name, want.status, want.contentType, want.body)
	}

	// Both say goodbye when they stop in order.
	kube = c.serve("kube-apiserver", "machine-1", kubePort, kubeFlags...)
	keelson.awaitAnswer(t, candidates, http.StatusOK, "")
	kube.stop(t)
	keelson.awaitAnswer(t, candidates, http.StatusNotFound, "")
	kube = c.serve("kube-apiserver", "machine-1", kubePort, kubeFlags...)
	kube.awaitAnswer(t, jobs, http.StatusOK, "")
	keelson.stop(t)
	kube.awaitAnswer(t, jobs, http.StatusNotFound, "")
}
