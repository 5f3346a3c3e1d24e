package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// etcdServer is an etcd of one member that runs as a program.
type etcdServer struct {
	*process
	url string
}

// startEtcd runs etcd on new data below dir.
func startEtcd(t *testing.T, dir string) *etcdServer {
	t.Helper()
	client, peer := freePort(t), freePort(t)
	e := &etcdServer{url: fmt.Sprintf("http://127.0.0.1:%d", client)}
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", peer)
	data := filepath.Join(dir, fmt.Sprintf("etcd-%d", client))
	e.process = start(t, data+".log", nil, program(t, "etcd"), "--data-dir", data,
		"--listen-client-urls", e.url, "--advertise-client-urls", e.url,
		"--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL, "--initial-cluster", "default="+peerURL)
	eventually(t, time.Minute, "etcd answers", func(ctx context.Context) error {
		_, err := e.keys(ctx, "/")
		return err
	})
	return e
}

// freePort returns a port on which nobody listens at the moment.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// call sends a request to etcd's gateway, which uses JSON with keys and values in base64.
func (e *etcdServer) call(ctx context.Context, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s %s", path, resp.Status, text)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

func (e *etcdServer) put(ctx context.Context, key string, value []byte) error {
	var answer struct{}
	return e.call(ctx, "/v3/kv/put", map[string][]byte{"key": []byte(key), "value": value}, &answer)
}

// keys returns the number of keys with a prefix.
func (e *etcdServer) keys(ctx context.Context, prefix string) (int, error) {
	end := []byte(prefix)
	end[len(end)-1]++
	var answer struct{ Count string }
	err := e.call(
		ctx, "/v3/kv/range", map[string]any{"key": []byte(prefix), "range_end": end, "count_only": true}, &answer,
	)
	if err != nil || answer.Count == "" {
		return 0, err
	}
	return strconv.Atoi(answer.Count)
}

// get returns the value of a key, nil if there is none.
func (e *etcdServer) get(ctx context.Context, key string) ([]byte, error) {
	var answer struct {
		Kvs []struct{ Value []byte }
	}
	err := e.call(ctx, "/v3/kv/range", map[string][]byte{"key": []byte(key)}, &answer)
	if err != nil || len(answer.Kvs) == 0 {
		return nil, err
	}
	return answer.Kvs[0].Value, nil
}

// apiServer is Keelson or kube-apiserver running as a process.
type apiServer struct {
	*process
	name string
	url  string
	http *http.Client
}

// newAPIServer returns a client of a server that listens on a port.
func newAPIServer(name string, port int) *apiServer {
	return &apiServer{name: name, url: fmt.Sprintf("https://127.0.0.1:%d", port), http: &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the server runs on this machine
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: 100,
		},
	}}
}

func tokensFile(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(path, []byte(adminToken+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubeAPIServer runs kube-apiserver on an etcd.
func kubeAPIServer(t *testing.T, dir string, e *etcdServer, args ...string) *apiServer {
	t.Helper()
	port := freePort(t)
	s := newAPIServer("kube-apiserver", port)
	key := signingKey(t, dir)
	s.process = start(t, filepath.Join(
		dir, fmt.Sprintf("kube-apiserver-%d.log", port),
	), nil, program(t, "kube-apiserver"), append([]string{
		"--etcd-servers", e.url, "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(port),
		"--cert-dir", filepath.Join(dir, "kube-apiserver"), "--token-auth-file", tokensFile(t, dir),
		"--authorization-mode", "Node,RBAC", "--service-cluster-ip-range", "10.0.0.0/16",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key,
		"--service-account-signing-key-file", key,
		"--endpoint-reconciler-type", "none"}, args...)...)
	s.awaitReady(t)
	return s
}

// signingKey creates a key for service account tokens.
func signingKey(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "sa.key")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// keelsonOn runs Keelson with flags that say where its data is. It does not check the types of admission policies,
// delete the content of namespaces or collect garbage, because no kube-controller-manager does that beside the
// kube-apiserver with which it is compared.
func keelsonOn(t *testing.T, dir string, args ...string) *apiServer {
	t.Helper()
	port := freePort(t)
	s := newAPIServer("keelson", port)
	data := filepath.Join(dir, fmt.Sprintf("keelson-%d", port))
	shareCredentials(t, dir, data)
	s.process = start(t, data+".log", nil, program(t, "keelson"), append([]string{"serve",
		"--data-dir", data, "--secure-port", strconv.Itoa(port), "--token-auth-file", tokensFile(t, dir),
		"--service-cluster-ip-range", "10.0.0.0/16",
		"--controllers", "serviceaccount-controller,resourcequota-controller"}, args...)...)
	s.awaitReady(t)
	return s
}

// shareCredentials copies the authority and the key of tokens of an earlier server of the test to a new data directory: servers on
// one etcd that have nothing in common refuse to start (docs/replicas.md). Data directories are called keelson-PORT.
func shareCredentials(t *testing.T, dir, data string) {
	t.Helper()
	earlier, err := filepath.Glob(filepath.Join(dir, "keelson-*", "pki", "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	pki := filepath.Join(data, "pki")
	if len(earlier) == 0 || filepath.Dir(earlier[0]) == pki {
		return
	}
	if err := os.MkdirAll(pki, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "ca.key", "sa.key"} {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(earlier[0]), name))
		if os.IsNotExist(err) {
			continue // flags name the key of tokens
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(pki, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (s *apiServer) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, 2*time.Minute, s.name+" is ready", func(ctx context.Context) error {
		select {
		case <-s.ended:
			t.Fatalf("%s ended: %v\n%s", s.name, s.err, tail(s.log))
		default:
		}
		status, body, err := s.call(ctx, http.MethodGet, "/readyz", "", "", nil)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
}

// call sends a request as the administrator.
func (s *apiServer) call(
	ctx context.Context, method, path, accept, contentType string, body []byte,
) (int, []byte, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, reader)
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.Header.Set("User-Agent", "e2e")
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// must is call for requests that must get a response.
func (s *apiServer) must(t *testing.T, method, path, accept, contentType string, body []byte) (int, []byte) {
	t.Helper()
	status, answer, err := s.call(t.Context(), method, path, accept, contentType, body)
	if err != nil {
		t.Fatalf("%s: %s %s: %v", s.name, method, path, err)
	}
	return status, answer
}
