package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// balancer forwards TCP connections to the backends that are ready, one after the other, as a load balancer in front of a control
// plane does.
type balancer struct {
	net.Listener
	backends []*backend
	next     atomic.Int64
}

// backend is a server behind a balancer.
type backend struct {
	address string
	ready   atomic.Bool
	served  atomic.Int64 // connections
}

// balance starts a balancer, which asks each backend for /readyz every 100 ms.
func balance(t *testing.T, ports ...int) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{Listener: l}
	for _, port := range ports {
		end := &backend{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
		b.backends = append(b.backends, end)
		go end.probe(t.Context(), newAPIServer("replica", port))
	}
	t.Cleanup(func() { _ = l.Close() })
	go b.accept()
	return b
}

func (b *backend) probe(ctx context.Context, s *apiServer) {
	s.http.Timeout = time.Second
	s.http.Transport.(*http.Transport).DisableKeepAlives = true
	for ctx.Err() == nil {
		status, _, err := s.call(ctx, http.MethodGet, "/readyz", "", "", nil)
		b.ready.Store(err == nil && status == http.StatusOK)
		time.Sleep(100 * time.Millisecond)
	}
}

func (b *balancer) accept() {
	for {
		client, err := b.Accept()
		if err != nil {
			return
		}
		go b.forward(client)
	}
}

func (b *balancer) forward(client net.Conn) {
	defer client.Close()
	for range b.backends {
		e := b.backends[int(b.next.Add(1))%len(b.backends)]
		if !e.ready.Load() {
			continue
		}
		server, err := net.Dial("tcp", e.address)
		if err != nil {
			continue
		}
		e.served.Add(1)
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(server, client); _ = server.(*net.TCPConn).CloseWrite() })
		both.Go(func() { _, _ = io.Copy(client, server); _ = client.(*net.TCPConn).CloseWrite() })
		both.Wait()
		_ = server.Close()
		return
	}
}

// TestRollingRestarts restarts two replicas on one etcd, one after the other, while clients send 200 requests a second through a
// load balancer, and an informer watches. No request may fail: a replica that stops is not ready while it still serves, then
// sends GOAWAY to its clients and finishes the requests in flight; client-go sends requests again that were not processed.
// Watches end, and the informer continues them. A webhook makes each update take slowUpdate, so that some requests are always
// in flight; replicas that are killed instead do fail requests.
func TestRollingRestarts(t *testing.T) {
	for name, flags := range map[string][]string{
		"delay":                 {"--shutdown-delay-duration=1s"},
		"delay and retry after": {"--shutdown-delay-duration=1s", "--shutdown-send-retry-after", "--goaway-chance=0.01"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range rollingRestarts(t, flags, (*apiServer).stop) {
				t.Error(err)
			}
		})
	}
	t.Run("killed", func(t *testing.T) {
		kill := func(s *apiServer, t *testing.T) {
			if err := s.process.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-s.process.ended
		}
		if failed := rollingRestarts(t, nil, kill); len(failed) == 0 {
			t.Error("no request failed although replicas were killed: the test does not notice failures")
		}
	})
}

// slowUpdate is how long the webhook for updates of ConfigMaps takes.
const slowUpdate = 200 * time.Millisecond

// registerSlowWebhook has updates of ConfigMaps in the namespace default wait for a webhook.
func registerSlowWebhook(t *testing.T, s *apiServer) {
	t.Helper()
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		time.Sleep(slowUpdate)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&review)
	}))
	t.Cleanup(hook.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	body := fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",
		"metadata":{"name":"slow"},"webhooks":[{"name":"slow.example.com","clientConfig":{"url":%q,"caBundle":%q},
		"admissionReviewVersions":["v1"],"sideEffects":"None","namespaceSelector":{"matchLabels":{
		"kubernetes.io/metadata.name":"default"}},"rules":[{"operations":["UPDATE"],"apiGroups":[""],"apiVersions":["v1"],
		"resources":["configmaps"]}]}]}`, hook.URL, base64.StdEncoding.EncodeToString(ca))
	status, answer, err := s.call(t.Context(), http.MethodPost,
		"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", "", "application/json", []byte(body))
	if err != nil || status != http.StatusCreated {
		t.Fatal(status, err, string(answer))
	}
}

// rollingRestarts restarts replicas by stop under load, and returns the errors of the clients.
func rollingRestarts(t *testing.T, flags []string, stop func(*apiServer, *testing.T)) []error {
	dir := logDir(t)
	etcd, key, ports := startEtcd(t, dir), signingKey(t, dir), []int{freePort(t), freePort(t)}
	replica := func(port int) *apiServer {
		t.Helper()
		s := newAPIServer("keelson", port)
		data := filepath.Join(dir, fmt.Sprintf("keelson-%d", port))
		shareCredentials(t, dir, data)
		s.process = start(t, data+".log", nil, program(t, "keelson"), append([]string{"serve", "--etcd-servers", etcd.url,
			"--data-dir", data, "--secure-port", strconv.Itoa(port), "--token-auth-file", tokensFile(t, dir),
			"--service-account-key-file", key, "--service-account-signing-key-file", key}, flags...)...)
		s.awaitReady(t)
		return s
	}
	servers := []*apiServer{replica(ports[0]), replica(ports[1])}
	b := balance(t, ports...)
	eventually(t, 10*time.Second, "both replicas are ready", func(context.Context) error {
		if !b.backends[0].ready.Load() || !b.backends[1].ready.Load() {
			return errors.New("one is not")
		}
		return nil
	})
	registerSlowWebhook(t, servers[0])
	l := newRequestLoad(t, b.Addr().String())
	l.run(t, func() {
		const rounds = 2
		for range rounds {
			for i := range servers {
				stop(servers[i], t)
				servers[i] = replica(ports[i])
				time.Sleep(time.Second) // the balancer notices
			}
		}
	})
	for _, e := range b.backends {
		t.Logf("%s got %d connections", e.address, e.served.Load())
	}
	close(l.failed)
	var errs []error
	for err := range l.failed {
		errs = append(errs, err)
	}
	return errs
}

// requestLoad is clients that send requests at a fixed rate.
type requestLoad struct {
	clients []*kubernetes.Clientset
	sent    atomic.Int64
	failed  chan error
}

func newRequestLoad(t *testing.T, address string) *requestLoad {
	t.Helper()
	l := &requestLoad{failed: make(chan error, 100)}
	const clients = 20
	for i := range clients {
		c, err := kubernetes.NewForConfig(&rest.Config{
			Host: "https://" + address, BearerToken: adminToken, QPS: -1,
			TLSClientConfig: rest.TLSClientConfig{Insecure: true, ServerName: fmt.Sprintf("client-%d", i)},
		})
		if err != nil {
			t.Fatal(err)
		}
		l.clients = append(l.clients, c)
	}
	return l
}

// run sends requests while work runs, and checks that an informer has the last state then.
func (l *requestLoad) run(t *testing.T, work func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	factory := informers.NewSharedInformerFactory(l.clients[0], 0)
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer does not start")
	}
	var all sync.WaitGroup
	done := make(chan struct{})
	for i, c := range l.clients {
		all.Go(func() { l.client(ctx, i, c, done) })
	}
	began := time.Now()
	work()
	close(done)
	all.Wait()
	seconds := time.Since(began).Seconds()
	t.Logf("%d requests, %.0f a second; %d failed", l.sent.Load(), float64(l.sent.Load())/seconds, len(l.failed))
	list, err := l.clients[0].CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the informer has the last state", func(context.Context) error {
		for i := range list.Items {
			got, found, _ := informer.GetStore().GetByKey("default/" + list.Items[i].Name)
			if !found || got.(*corev1.ConfigMap).ResourceVersion != list.Items[i].ResourceVersion {
				return fmt.Errorf("%s is another one", list.Items[i].Name)
			}
		}
		return nil
	})
}

// client sends about 10 requests a second: it creates an object, updates, reads, lists and deletes it.
func (l *requestLoad) client(ctx context.Context, i int, c *kubernetes.Clientset, done <-chan struct{}) {
	maps := c.CoreV1().ConfigMaps("default")
	name := fmt.Sprintf("load-%d", i)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	steps := []func() error{
		func() error { _, err := maps.Create(ctx, object, metav1.CreateOptions{}); return err },
		func() error { _, err := maps.Get(ctx, name, metav1.GetOptions{}); return err },
		func() error {
			changed := object.DeepCopy()
			changed.Data = map[string]string{"a": "b"}
			_, err := maps.Update(ctx, changed, metav1.UpdateOptions{})
			return err
		},
		func() error { _, err := maps.List(ctx, metav1.ListOptions{}); return err },
		func() error { return maps.Delete(ctx, name, metav1.DeleteOptions{}) },
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		l.sent.Add(1)
		if err := steps[n%len(steps)](); err != nil {
			select {
			case l.failed <- fmt.Errorf("client %d, step %d: %w", i, n%len(steps), err):
			default:
			}
		}
	}
}
