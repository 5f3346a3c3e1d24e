package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	apidiscovery "k8s.io/api/apidiscovery/v2"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/controller/bootstrap"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// peerFiles are the files of a cluster whose servers know each other: what an installer writes.
type peerFiles struct{ ca, cert, key, proxyCA, proxyCert, proxyKey string }

func newPeerFiles(t *testing.T) *peerFiles {
	t.Helper()
	set, err := certs.Ensure(certs.Options{
		Serving: true, FrontProxy: true, Names: []string{"kubernetes.default.svc"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return &peerFiles{
		ca: file("ca.crt", set.CA), cert: file("server.crt", set.Serving.Cert), key: file("server.key", set.Serving.Key),
		proxyCA: file("proxy-ca.crt", set.FrontProxyCA), proxyCert: file("proxy.crt", set.FrontProxy.Cert),
		proxyKey: file("proxy.key", set.FrontProxy.Key),
	}
}

// peerServer is one of the servers of a cluster.
type peerServer struct {
	*keelson.Server
	t      *testing.T
	client *kubernetes.Clientset
	roots  *x509.CertPool
}

// servePeer starts a server of a host name.
func servePeer(t *testing.T, c *cluster, f *peerFiles, host string, adjust func(*config.Config)) *peerServer {
	t.Helper()
	conf := config.InMemory()
	conf.Storage.Backend, conf.Storage.Etcd.Servers, conf.Diagnostics.Log = config.StorageEtcd, c.endpoints(), quiet()
	conf.Storage.Etcd.HealthcheckTimeout, conf.Storage.Etcd.ReadycheckTimeout = patience/2, patience/2
	conf.Network.ControlPlane.Hostname = host
	conf.Serving.TLS.CertFile, conf.Serving.TLS.KeyFile = f.cert, f.key
	conf.Network.Peers.CAFile = f.ca
	conf.Network.Aggregation.ProxyClientCertFile, conf.Network.Aggregation.ProxyClientKeyFile = f.proxyCert, f.proxyKey
	h := &conf.Authentication.RequestHeader
	h.ClientCAFile, h.AllowedNames = f.proxyCA, []string{certs.FrontProxyName}
	h.UsernameHeaders, h.UIDHeaders = []string{"X-Remote-User"}, []string{"X-Remote-Uid"}
	h.GroupHeaders, h.ExtraHeaderPrefixes = []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"}
	if adjust != nil {
		adjust(&conf)
	}
	s, err := keelson.Start(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	p := &peerServer{Server: s, t: t, client: kubernetes.NewForConfigOrDie(s.RESTConfig()), roots: x509.NewCertPool()}
	t.Cleanup(func() { p.stop() })
	pem, err := os.ReadFile(f.ca)
	if err != nil {
		t.Fatal(err)
	}
	p.roots.AppendCertsFromPEM(pem)
	return p
}

func (p *peerServer) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		p.t.Errorf("stop: %v", err)
	}
}

// answer is a response with its body.
type answer struct {
	status int
	header http.Header
	body   string
}

// call sends a request with an administrator's certificate.
func (p *peerServer) call(method, path, body string, header ...string) answer {
	p.t.Helper()
	pair, err := tls.X509KeyPair(p.RESTConfig().CertData, p.RESTConfig().KeyData)
	if err != nil {
		p.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.roots, Certificates: []tls.Certificate{pair}}}
	defer transport.CloseIdleConnections()
	return p.do(transport, method, path, body, header...)
}

func (p *peerServer) do(transport *http.Transport, method, path, body string, header ...string) answer {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.URL()+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

// awaitStatus waits until a GET is answered with a status.
func (p *peerServer) awaitStatus(path string, status int) answer {
	p.t.Helper()
	var got answer
	within(p.t, fmt.Sprintf("%s is answered %d", path, status), func() error {
		if got = p.call("GET", path, ""); got.status != status {
			return fmt.Errorf("%d: %s", got.status, got.body)
		}
		return nil
	})
	return got
}

// groupVersions returns the versions in the aggregated document of /apis.
func (p *peerServer) groupVersions(profile string) (versions []string, body string) {
	p.t.Helper()
	got := p.call("GET", "/apis", "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"+profile)
	var list apidiscovery.APIGroupDiscoveryList
	if err := json.Unmarshal([]byte(got.body), &list); err != nil {
		p.t.Fatal(err)
	}
	for _, g := range list.Items {
		for _, v := range g.Versions {
			versions = append(versions, g.Name+"/"+v.Version)
		}
	}
	return versions, got.body
}

const (
	jobs       = "/apis/batch/v1/namespaces/default/jobs"
	candidates = "/apis/coordination.k8s.io/v1beta1/leasecandidates"
	whoAmI     = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

// twoPeers starts two servers: east alone serves batch/v1 and authentication.k8s.io/v1, west alone coordination.k8s.io/v1beta1.
func twoPeers(t *testing.T, c *cluster, f *peerFiles) (east, west *peerServer) {
	t.Helper()
	east = servePeer(t, c, f, "east", nil)
	west = servePeer(t, c, f, "west", func(c *config.Config) {
		c.API.RuntimeConfig = []string{"batch/v1=false", "authentication.k8s.io/v1=false", "coordination.k8s.io/v1beta1=true"}
	})
	west.awaitStatus(jobs, http.StatusOK)
	east.awaitStatus(candidates, http.StatusOK)
	return east, west
}

// TestPeers checks that a request for what only the other server serves is answered by that one, in the name of the same user.
func TestPeers(t *testing.T) {
	t.Parallel()
	c, f := start(t, 1, nil), newPeerFiles(t)
	east, west := twoPeers(t, c, f)
	ctx, cancel := bounded(t)
	defer cancel()

	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{RestartPolicy: "Never", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}}}
	w, err := west.client.BatchV1().Jobs("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := west.client.BatchV1().Jobs("default").Create(ctx, job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-w.ResultChan():
		if got, ok := e.Object.(*batchv1.Job); !ok || got.Name != "one" {
			t.Errorf("the watch through the peer has %+v", e)
		}
	case <-ctx.Done():
		t.Error("the watch through the peer has no event")
	}
	if got, err := east.client.BatchV1().Jobs("default").Get(ctx, "one", metav1.GetOptions{}); err != nil {
		t.Error(err, got)
	}

	t.Run("user", func(t *testing.T) {
		config := west.RESTConfigFor("jane", "dev")
		client := kubernetes.NewForConfigOrDie(config)
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(
			ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		u := review.Status.UserInfo
		if u.Username != "jane" || !slices.Equal(u.Groups, []string{"dev", "system:authenticated"}) {
			t.Errorf("the peer sees %+v", u)
		}
	})
	t.Run("headers of a client", func(t *testing.T) {
		review := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
		got := west.call("POST", whoAmI, review, "Content-Type", "application/json",
			"X-Remote-User", "mallory", "X-Remote-Group", "evil", "X-Remote-Extra-A", "b")
		if got.status != http.StatusCreated || !strings.Contains(got.body, "kubernetes-admin") ||
			strings.Contains(got.body, "mallory") || strings.Contains(got.body, "evil") {
			t.Errorf("%d %s", got.status, got.body)
		}
		if ids := got.header["Audit-Id"]; len(ids) != 1 {
			t.Errorf("Audit-Id %q", ids)
		}
	})
	t.Run("impersonation", func(t *testing.T) {
		review := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
		got := west.call("POST", whoAmI, review, "Content-Type", "application/json", "Impersonate-User", "bob",
			"Impersonate-Extra-acme.com%2fproject", "p")
		if got.status != http.StatusCreated || !strings.Contains(got.body, `"username":"bob"`) ||
			!strings.Contains(got.body, `"acme.com/project":["p"]`) {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
	t.Run("forbidden here", func(t *testing.T) {
		client := kubernetes.NewForConfigOrDie(west.RESTConfigFor("jane"))
		_, err := client.BatchV1().Jobs("default").List(ctx, metav1.ListOptions{})
		if err == nil || !strings.Contains(err.Error(), `User "jane" cannot list resource "jobs"`) {
			t.Error(err)
		}
	})
	t.Run("never twice", func(t *testing.T) {
		if got := west.call("GET", jobs, "", "X-Kubernetes-Peer-Proxied", "true"); got.status != http.StatusNotFound {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
	t.Run("unknown everywhere", func(t *testing.T) {
		for _, path := range []string{"/apis/batch/v1/nothing", "/apis/nothing.example.com/v1/x", "/apis/batch/v7/jobs", "/api/v1/x"} {
			if got := west.call("GET", path, ""); got.status != http.StatusNotFound {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
	})
	t.Run("discovery", func(t *testing.T) {
		here, document := west.groupVersions("")
		there, other := east.groupVersions("")
		if document != other {
			t.Errorf("the servers show different resources: %q and %q", here, there)
		}
		alone, _ := west.groupVersions(";profile=nopeer")
		for version, only := range map[string]bool{
			"batch/v1": false, "authentication.k8s.io/v1": false, "coordination.k8s.io/v1beta1": true, "coordination.k8s.io/v1": true, "apps/v1": true,
		} {
			if !slices.Contains(here, version) || slices.Contains(alone, version) != only {
				t.Errorf("%s: %q, without peers %q", version, here, alone)
			}
		}
		// As in kube-apiserver, a peer's document of a version is not served.
		if got := west.call("GET", "/apis/batch/v1", ""); got.status != http.StatusNotFound {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
	t.Run("metrics", func(t *testing.T) {
		if got := west.call("GET", "/api/v1/namespaces", ""); got.status != http.StatusOK {
			t.Errorf("%d %s", got.status, got.body)
		}
		text := west.call("GET", "/metrics", "").body
		if strings.Contains(text, `apiserver_rerouted_request_total{code="200",group="",resource="namespaces"`) {
			t.Error("a request that this server can answer was forwarded")
		}
		for _, series := range []string{
			`apiserver_rerouted_request_total{code="201",group="batch",resource="jobs",version="v1"} 1`,
			`apiserver_rerouted_request_total{code="200",group="",resource="",version=""}`,
			"aggregator_discovery_nopeer_requests_total", "aggregator_discovery_peer_aggregated_cache_misses_total",
		} {
			if !strings.Contains(text, series) {
				t.Errorf("%s is missing", series)
			}
		}
	})
	t.Run("health", func(t *testing.T) {
		text := west.call("GET", "/readyz?verbose", "").body
		for _, name := range []string{
			"peer-endpoint-reconciler-controller", "mixed-version-proxy-handler", "local-discovery-cache-sync", "peer-discovery-workers",
		} {
			if !strings.Contains(text, "[+]poststarthook/"+name+" ok") {
				t.Errorf("%s is missing in %s", name, text)
			}
		}
	})
}

// TestPeerIsGone checks what clients are told when the server of a resource cannot be reached.
func TestPeerIsGone(t *testing.T) {
	t.Parallel()
	c, f := start(t, 1, nil), newPeerFiles(t)
	east, west := twoPeers(t, c, f)
	raw := c.open(t, etcd.Options{})
	ctx, cancel := bounded(t)
	defer cancel()
	record := "/registry/peerserverleases/" + bootstrap.ServerName("east")
	entry, _, err := raw.Get(ctx, record, 0)
	if err != nil || !bytes.HasPrefix(entry.Value, []byte("k8s\x00\n\x0f\n\x02v1\x12\tEndpoints")) ||
		!bytes.Contains(entry.Value, []byte("apiserverIdentity")) {
		t.Fatalf("the record is %q, %v", entry.Value, err)
	}
	lease, err := west.client.CoordinationV1().Leases("kube-system").Get(ctx, bootstrap.ServerName("east"), metav1.GetOptions{})
	if err != nil || "https://"+lease.Annotations["kubernetes.io/peer-advertise-address"] != east.URL() {
		t.Errorf("%v, %v", lease, err)
	}

	within(t, "503 without a record", func() error { // the server writes it again every 10 s
		if _, err := raw.Commit(ctx, storage.Txn{Ops: []storage.Op{storage.Delete(record)}}); err != nil {
			return err
		}
		got := west.call("GET", jobs, "")
		const want = `"status":"Failure","message":"Error getting ip and port info of the remote server while proxying",` +
			`"reason":"ServiceUnavailable","code":503}`
		if got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, want) {
			return fmt.Errorf("%d %s", got.status, got.body)
		}
		return nil
	})
	west.awaitStatus(jobs, http.StatusOK)

	// A server that has ended without saying so: its address refuses connections.
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(closed.Addr().String())
	closed.Close()
	_, eastPort, _ := net.SplitHostPort(strings.TrimPrefix(east.URL(), "https://"))
	within(t, "503 at a closed port", func() error {
		entry, _, err := raw.Get(ctx, record, 0)
		if err != nil {
			return err
		}
		moved, err := withPort(entry.Value, eastPort, port)
		if err != nil {
			return err
		}
		if _, err := raw.Commit(ctx, storage.Txn{Ops: []storage.Op{{Key: record, Value: moved, TTL: 15}}}); err != nil {
			return err
		}
		got := west.call("GET", jobs, "")
		if got.status != http.StatusServiceUnavailable || !strings.HasPrefix(got.body, "error trying to reach service: dial tcp") {
			return fmt.Errorf("%d %s", got.status, got.body)
		}
		return nil
	})
	west.awaitStatus(jobs, http.StatusOK) // east corrects its record

	// A server that stops in order says goodbye.
	east.stop()
	if entry, _, err := raw.Get(ctx, record, 0); err != nil || entry.ModRevision != 0 {
		t.Errorf("the record stays: %q, %v", entry.Value, err)
	}
	west.awaitStatus(jobs, http.StatusNotFound)
	within(t, "discovery without the server that has stopped", func() error {
		if versions, _ := west.groupVersions(""); slices.Contains(versions, "batch/v1") {
			return fmt.Errorf("%q", versions)
		}
		return nil
	})

	// It comes back with other flags under the same name.
	servePeer(t, c, f, "east", func(c *config.Config) { c.API.RuntimeConfig = []string{"resource.k8s.io/v1beta2=true"} })
	west.awaitStatus(jobs, http.StatusOK)
	west.awaitStatus("/apis/resource.k8s.io/v1beta2/deviceclasses", http.StatusOK)
}

// withPort replaces the port in a stored record.
func withPort(record []byte, from, to string) ([]byte, error) {
	varint := func(port string) ([]byte, error) {
		n, err := strconv.Atoi(port)
		var out []byte
		for ; n >= 0x80; n >>= 7 {
			out = append(out, byte(n)|0x80)
		}
		return append(append([]byte{0x10}, out...), byte(n)), err
	}
	a, err := varint(from)
	if err != nil {
		return nil, err
	}
	b, err := varint(to)
	if err != nil || len(a) != len(b) || bytes.Count(record, a) != 1 {
		return nil, fmt.Errorf("port %s is not in %q: %w", from, record, err)
	}
	return bytes.Replace(record, a, b, 1), nil
}

// TestStrangersAreNoPeers checks that a client cannot make itself a peer, and that a peer is verified.
func TestStrangersAreNoPeers(t *testing.T) {
	t.Parallel()
	c, f := start(t, 1, nil), newPeerFiles(t)
	west := servePeer(t, c, f, "west", func(c *config.Config) { c.API.RuntimeConfig = []string{"batch/v1=false"} })
	ctx, cancel := bounded(t)
	defer cancel()

	// A Lease alone has no address, whatever it says.
	asked := make(chan struct{}, 100)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
			asked <- struct{}{}
		}
	}()
	holder := "mallory_1"
	for _, namespace := range []string{"kube-system", "default"} {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "apiserver-mallory", Labels: map[string]string{
				"apiserver.kubernetes.io/identity": "kube-apiserver",
			}, Annotations: map[string]string{"kubernetes.io/peer-advertise-address": listener.Addr().String()}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
		if _, err := west.client.CoordinationV1().Leases(namespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	within(t, "the Lease was looked at", func() error {
		const series = `apiserver_peer_discovery_sync_errors_total{type="hostport_resolution"}`
		if text := west.call("GET", "/metrics", "").body; !strings.Contains(text, series) {
			return fmt.Errorf("no %s", series)
		}
		return nil
	})
	if got := west.call("GET", jobs, ""); got.status != http.StatusNotFound {
		t.Errorf("%d %s", got.status, got.body)
	}
	if len(asked) > 0 {
		t.Error("the server has called the address of a Lease")
	}

	// A server with a certificate of another authority is not believed.
	other := newPeerFiles(t)
	servePeer(t, c, f, "east", func(c *config.Config) { c.Serving.TLS.CertFile, c.Serving.TLS.KeyFile = other.cert, other.key })
	within(t, "the server was looked at", func() error {
		const series = `apiserver_peer_discovery_sync_errors_total{type="fetch_discovery"}`
		if text := west.call("GET", "/metrics", "").body; !strings.Contains(text, series) {
			return fmt.Errorf("no %s", series)
		}
		return nil
	})
	if got := west.call("GET", jobs, ""); got.status != http.StatusNotFound {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestPeersAreOff checks that without an authority for peers nothing is forwarded, but the record is there for peers that do;
// and that without the feature gate there is no record.
func TestPeersAreOff(t *testing.T) {
	t.Parallel()
	c, f := start(t, 1, nil), newPeerFiles(t)
	raw := c.open(t, etcd.Options{})
	ctx, cancel := bounded(t)
	defer cancel()
	servePeer(t, c, f, "east", nil)
	west := servePeer(t, c, f, "west", func(c *config.Config) {
		c.Network.Peers.CAFile = ""
		c.Network.Peers.AdvertiseIP, c.Network.Peers.AdvertisePort = "192.0.2.1", "7"
		c.API.RuntimeConfig = []string{"batch/v1=false"}
	})
	north := servePeer(t, c, f, "north", func(c *config.Config) {
		c.Network.Peers.CAFile, c.API.FeatureGates = "", []string{"UnknownVersionInteroperabilityProxy=false"}
	})
	within(t, "the record of west", func() error {
		entry, _, err := raw.Get(ctx, "/registry/peerserverleases/"+bootstrap.ServerName("west"), 0)
		if err != nil || !bytes.Contains(entry.Value, []byte("192.0.2.1")) {
			return fmt.Errorf("%q, %w", entry.Value, err)
		}
		return nil
	})
	if entry, _, err := raw.Get(ctx, "/registry/peerserverleases/"+bootstrap.ServerName("north"), 0); err != nil || entry.ModRevision != 0 {
		t.Errorf("without the gate: %q, %v", entry.Value, err)
	}
	lease, err := north.client.CoordinationV1().Leases("kube-system").Get(ctx, bootstrap.ServerName("north"), metav1.GetOptions{})
	if err != nil || len(lease.Annotations) > 0 {
		t.Errorf("without the gate: %v, %v", lease, err)
	}
	if got := west.call("GET", jobs, ""); got.status != http.StatusNotFound {
		t.Errorf("%d %s", got.status, got.body)
	}
	if text := west.call("GET", "/readyz?verbose", "").body; strings.Contains(text, "mixed-version-proxy-handler") ||
		!strings.Contains(text, "peer-endpoint-reconciler-controller") {
		t.Error(text)
	}
	conf := config.InMemory()
	conf.Network.Peers.CAFile, conf.API.FeatureGates = f.ca, []string{"UnknownVersionInteroperabilityProxy=false"}
	if _, err := keelson.Start(ctx, conf); err == nil ||
		!strings.Contains(err.Error(), "Network.Peers.CAFile requires UnknownVersionInteroperabilityProxy feature to be turned on") {
		t.Error(err)
	}
}
