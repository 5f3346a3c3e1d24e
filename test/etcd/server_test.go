package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/encrypt"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// serve runs a server on a cluster until the test ends.
func serve(t testing.TB, c *cluster, adjust func(*config.Config)) *kubernetes.Clientset {
	t.Helper()
	conf := config.InMemory() // without a data directory
	conf.Storage.Backend = config.StorageEtcd
	conf.Storage.Etcd.Servers = c.endpoints()
	conf.Storage.Etcd.HealthcheckTimeout, conf.Storage.Etcd.ReadycheckTimeout = patience/2, patience/2 // long, for a busy machine
	conf.Diagnostics.Log = quiet()
	if adjust != nil {
		adjust(&conf)
	}
	s, err := keelson.Start(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	rest := s.RESTConfig()
	rest.Timeout = patience // of each request, including watches
	return kubernetes.NewForConfigOrDie(rest)
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": "v"}}
}

func TestServerOnEtcd(t *testing.T) {
	c := start(t, 1, nil)
	client := serve(t, c, nil)
	ctx := t.Context()
	maps := client.CoreV1().ConfigMaps("default")
	w, err := maps.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	made, err := maps.Create(ctx, configMap("one"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watched := ""
	for e := range w.ResultChan() { // until the timeout of the request
		if cm, ok := e.Object.(*corev1.ConfigMap); ok && cm.Name == "one" {
			watched = cm.ResourceVersion
			break
		}
	}
	if watched != made.ResourceVersion {
		t.Errorf("watched %q, created at %s", watched, made.ResourceVersion)
	}
	made.Data["k"] = "w"
	if _, err := maps.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := maps.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of what has changed: %v", err)
	}
	if _, err := maps.Create(ctx, configMap("one"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created twice: %v", err)
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "e"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: "default"},
	}
	if _, err := client.CoreV1().Events("default").Create(ctx, event, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if list, err := client.CoreV1().Events("default").List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	// The keys are those of kube-apiserver.
	raw := c.open(t, etcd.Options{})
	for _, key := range []string{
		"/registry/configmaps/default/one", "/registry/events/default/e", "/registry/namespaces/default",
	} {
		if e, _, err := raw.Get(ctx, key, 0); err != nil || !strings.HasPrefix(string(e.Value), "k8s\x00") {
			t.Errorf("%s: %q, %v", key, e.Value, err)
		}
	}
	if body, err := client.RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(ctx); err != nil ||
		!strings.Contains(string(body), "[+]etcd-readiness ok") {
		t.Errorf("%s, %v", body, err)
	}
}

// TestOverrides stores ConfigMaps in another cluster.
func TestOverrides(t *testing.T) {
	main, other := start(t, 1, nil), start(t, 1, nil)
	client := serve(t, main, func(c *config.Config) {
		c.Storage.Etcd.Overrides = []string{"/configmaps#" + strings.Join(other.endpoints(), ";")}
	})
	ctx := t.Context()
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, configMap("one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if list, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); err != nil ||
		len(list.Items) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	if _, err := client.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cluster *cluster
		key     string
		there   bool
	}{
		{other, "/registry/configmaps/default/one", true}, {main, "/registry/configmaps/default/one", false},
		{other, "/registry/secrets/default/one", false}, {main, "/registry/secrets/default/one", true},
	} {
		e, _, err := c.cluster.open(t, etcd.Options{}).Get(ctx, c.key, 0)
		if err != nil || (e.ModRevision != 0) != c.there {
			t.Errorf("%s: %+v, %v, want it there: %v", c.key, e, err, c.there)
		}
	}
}

// TestOverridesAreChecked checks that each further cluster has health checks of its own, and that they are excluded
// together with the check of the first cluster.
func TestOverridesAreChecked(t *testing.T) {
	t.Parallel()
	main, other := start(t, 1, nil), start(t, 1, nil)
	client := serve(t, main, func(c *config.Config) {
		// The checks of a cluster that is gone last as long. On a busy machine, others may fail too.
		c.Storage.Etcd.HealthcheckTimeout, c.Storage.Etcd.ReadycheckTimeout = 2*time.Second, 2*time.Second
		c.Storage.Etcd.Overrides = []string{"/configmaps#" + strings.Join(other.endpoints(), ";"), "/secrets#" +
			strings.Join(other.endpoints(), ";")}
	})
	get := func(path string, query ...string) string {
		r := client.RESTClient().Get().AbsPath(path).Param("verbose", "")
		for _, name := range query {
			r = r.Param("exclude", name)
		}
		body, err := r.DoRaw(t.Context())
		return fmt.Sprintf("%s %v", body, err)
	}
	const checks = "[+]etcd ok\n[+]etcd-readiness ok\n[+]etcd-override-0 ok\n[+]etcd-override-readiness-0 ok\n"
	within(t, "ready", func() error {
		if got := get("/readyz"); !strings.Contains(got, checks) || strings.Contains(got, "override-1") {
			return errors.New(got)
		}
		return nil
	})
	other.stop(0)
	const failed = "[+]etcd ok\n[+]etcd-readiness ok\n[-]etcd-override-0 failed: reason withheld\n[-]etcd-override-readiness-0 failed"
	within(t, "not ready without the other cluster", func() error {
		if got := get("/readyz"); !strings.Contains(got, failed) {
			return errors.New(got)
		}
		return nil
	})
	if got := get("/livez", "etcd"); !strings.Contains(
		got, "[+]etcd excluded: ok\n[+]etcd-override-0 excluded with etcd: ok\n",
	) || !strings.Contains(got, "check passed") {
		t.Error(got)
	}
	other.restart(0)
	within(t, "ready again", func() error {
		_, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
		return err
	})
}

// TestPrefix uses another key prefix.
func TestPrefix(t *testing.T) {
	c := start(t, 1, nil)
	client := serve(t, c, func(c *config.Config) { c.Storage.Etcd.Prefix = "/tenants/one" })
	ctx := t.Context()
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, configMap("one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if list, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); err != nil ||
		len(list.Items) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	r, err := c.open(t, etcd.Options{}).Range(ctx, storage.RangeRequest{})
	if err != nil || len(r.Entries) < 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, e := range r.Entries {
		if !strings.HasPrefix(e.Key, "/tenants/one/") {
			t.Errorf("a key elsewhere: %s", e.Key)
		}
	}
}

// TestReplicasAgree checks that a list on one replica always has the writes that another replica has acknowledged.
func TestReplicasAgree(t *testing.T) {
	c := start(t, 3, nil)
	a, b := serve(t, c, nil), serve(t, c, nil)
	tries := 300
	if long() {
		tries = 10_000
	}
	var wg sync.WaitGroup
	const workers = 4
	for worker := range workers {
		wg.Go(func() {
			for i := range tries / workers {
				name := fmt.Sprintf("w%d-%d", worker, i)
				made, err := a.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(name), metav1.CreateOptions{})
				if err != nil {
					t.Errorf("create: %v", err)
					return
				}
				list, err := b.CoreV1().ConfigMaps("default").List(
					t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name},
				)
				if err != nil || len(list.Items) != 1 || list.Items[0].ResourceVersion != made.ResourceVersion {
					t.Errorf("the other replica does not list %s at %s: %+v, %v", name, made.ResourceVersion, list, err)
					return
				}
				if err := b.CoreV1().ConfigMaps("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Errorf("delete: %v", err)
					return
				}
				if list, err := a.CoreV1().ConfigMaps("default").List(
					t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name},
				); err != nil || len(list.Items) != 0 {
					t.Errorf("%s is listed after its deletion on the other replica: %v", name, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestContinueAfterCompaction checks that, when the cluster has compacted the revision of a list, each replica answers
// its continue token with 410, whatever the replica still has in memory, and with a token that continues at the latest
// state.
func TestContinueAfterCompaction(t *testing.T) {
	c := start(t, 1, nil)
	ctx := t.Context()
	one, two := serve(t, c, nil).CoreV1().ConfigMaps("default"), serve(t, c, nil).CoreV1().ConfigMaps("default")
	for i := range 5 {
		if _, err := one.Create(ctx, configMap(fmt.Sprintf("map-%d", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := two.List(ctx, metav1.ListOptions{}); err != nil { // loads the objects into memory
		t.Fatal(err)
	}
	first, err := one.List(ctx, metav1.ListOptions{Limit: 2})
	if err != nil || len(first.Items) != 2 {
		t.Fatal(first, err)
	}
	last, err := one.Create(ctx, configMap("new"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	revision, err := strconv.ParseInt(last.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.open(t, etcd.Options{}).Compact(ctx, revision); err != nil {
		t.Fatal(err)
	}
	for name, maps := range map[string]interface {
		List(context.Context, metav1.ListOptions) (*corev1.ConfigMapList, error)
	}{"one": one, "two": two} {
		_, err := maps.List(
			ctx,
			metav1.ListOptions{ResourceVersion: first.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
		)
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: an exact list of what is compacted: %v", name, err)
		}
		_, err = maps.List(ctx, metav1.ListOptions{Limit: 2, Continue: first.Continue})
		var status apierrors.APIStatus
		if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) || status.Status().Continue == "" {
			t.Errorf("%s: the next page of what is compacted: %v", name, err)
			continue
		}
		rest, err := maps.List(ctx, metav1.ListOptions{Continue: status.Status().Continue})
		if err != nil || len(rest.Items) < 4 || rest.Items[0].Name <= first.Items[1].Name {
			t.Errorf("%s: the rest: %d objects, %v", name, len(rest.Items), err)
		}
	}
}

// TestPastOnEtcd reads the past of a ConfigMap that two servers have changed, deleted and made again. Both have the same past, also after
// etcd has compacted it.
func TestPastOnEtcd(t *testing.T) {
	c := start(t, 3, nil)
	keys := "" // of the first server, which all of them need
	onDisk := func(conf *config.Config) {
		conf.Storage.DataDir = t.TempDir()
		pki := filepath.Join(conf.Storage.DataDir, "pki")
		if keys == "" {
			keys = pki
			return
		}
		within(t, "the key of the first server, which is made after its start", func() error {
			_, err := os.Stat(filepath.Join(keys, "sa.key"))
			return err
		})
		if err := os.CopyFS(pki, os.DirFS(keys)); err != nil {
			t.Fatal(err)
		}
	}
	servers := []*kubernetes.Clientset{serve(t, c, onDisk), serve(t, c, onDisk)}
	ctx := t.Context()
	maps := func(i int) clientcorev1.ConfigMapInterface { return servers[i].CoreV1().ConfigMaps("default") }
	within(t, "a ConfigMap", func() error {
		_, err := maps(0).Create(ctx, configMap("a"), metav1.CreateOptions{FieldManager: "first"})
		return err
	})
	change := func(i int, value string) *corev1.ConfigMap {
		t.Helper()
		patch := []byte(`{"data":{"k":"` + value + `"}}`)
		o, err := maps(i).Patch(ctx, "a", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "second"})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	second := change(1, "2")
	if err := maps(0).Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps(1).Create(ctx, configMap("a"), metav1.CreateOptions{FieldManager: "first"}); err != nil {
		t.Fatal(err)
	}
	third := change(0, "3")
	read := func(client *kubernetes.Clientset, query string) (string, error) {
		b, err := client.CoreV1().RESTClient().Get().RequestURI("/api/v1/namespaces/default/configmaps/a" + query).DoRaw(ctx)
		return string(b), err
	}
	history := func(client *kubernetes.Clientset) (text, times string) {
		t.Helper()
		b, err := read(client, "/history")
		var answer struct {
			Items []struct {
				Type, FieldManager, UID, User string
				Time                          *metav1.MicroTime
				Changed                       []string
			}
		}
		if err == nil {
			err = json.Unmarshal([]byte(b), &answer)
		}
		if err != nil {
			t.Fatalf("the history: %v: %s", err, b)
		}
		for _, i := range answer.Items {
			if i.User != "kubernetes-admin" || i.Time == nil {
				t.Errorf("%+v", i)
			}
			of := map[string]string{string(second.UID): "old", string(third.UID): "new"}[i.UID]
			text += fmt.Sprint(of, " ", i.Type, " ", i.FieldManager, i.Changed, "; ")
			times += fmt.Sprint(i.Time, " ")
		}
		return text, times
	}
	const all = "new Updated second[.data.k]; new Created first[]; old Deleted []; old Updated second[.data.k]; old Created first[]; "
	compare := func(when string) {
		t.Helper()
		first, at := history(servers[0])
		other, atOther := history(servers[1])
		if first != all || other != all || at != atOther {
			t.Errorf("%s the history is\n%s at %s\n%s at %s", when, first, at, other, atOther)
		}
		for _, client := range servers {
			if text, err := read(client, "?asOf="+second.ResourceVersion); err != nil || !strings.Contains(text, `"k":"2"`) {
				t.Errorf("%s, as of then: %s, %v", when, text, err)
			}
		}
	}
	compare("at first")
	revision, err := strconv.ParseInt(third.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.open(t, etcd.Options{}).Compact(ctx, revision); err != nil {
		t.Fatal(err)
	}
	compare("after compaction")
}

// TestWithoutLocalState reads what a server without a disk can read of the past.
func TestWithoutLocalState(t *testing.T) {
	c := start(t, 1, nil)
	client := serve(t, c, nil)
	ctx := t.Context()
	within(t, "a ConfigMap", func() error {
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, configMap("a"), metav1.CreateOptions{})
		return err
	})
	o, err := client.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	read := func(query string) string {
		b, err := client.CoreV1().RESTClient().Get().RequestURI("/api/v1/namespaces/default/configmaps/a" + query).DoRaw(ctx)
		return fmt.Sprint(string(b), err)
	}
	check := func(query, want string) {
		t.Helper()
		if text := read(query); !strings.Contains(text, want) {
			t.Errorf("%s: %s", query, text)
		}
	}
	check("?asOf="+o.ResourceVersion, `"k":"v"`)
	check("?asOf=1m", "asOf has to be a resourceVersion")
	check("/history", "--local-state")
	_, err = client.CoreV1().ConfigMaps("default").Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"k":"2"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	store := c.open(t, etcd.Options{})
	revision, err := store.Revision(ctx)
	if err == nil {
		err = store.Compact(ctx, revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	check("?asOf="+o.ResourceVersion, `"reason":"Expired","code":410`)
}

func TestServerThroughTheStopOfAMember(t *testing.T) {
	t.Parallel()
	c := start(t, 3, nil)
	clients := []*kubernetes.Clientset{serve(t, c, nil), serve(t, c, nil), serve(t, c, nil)}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	made := make([]map[string]bool, len(clients))
	for i, client := range clients {
		made[i] = map[string]bool{}
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("r%d-%d", i, n)
				_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(name), metav1.CreateOptions{})
				if err != nil {
					time.Sleep(20 * time.Millisecond) // an election takes place; the outcome of the write is unknown
					continue
				}
				made[i][name] = true
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	for _, i := range []int{c.leader(), (c.leader() + 1) % 3} {
		c.stop(i)
		for r, client := range clients {
			within(t, fmt.Sprintf("replica %d writes", r), func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := client.CoreV1().ConfigMaps("kube-system").Create(
					ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{},
				)
				return err
			})
		}
		c.restart(i)
	}
	close(stop)
	wg.Wait()
	for r, client := range clients {
		list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("replica %d: %v", r, err)
		}
		there := map[string]bool{}
		for _, cm := range list.Items {
			there[cm.Name] = true
		}
		for i := range made {
			for name := range made[i] {
				if !there[name] {
					t.Errorf("replica %d lacks %s, which replica %d acknowledged", r, name, i)
				}
			}
		}
	}
}

// TestReplicasStartTogether starts replicas at the same time on an empty cluster. Each object that all of them create
// is created by one; no replica fails.
func TestReplicasStartTogether(t *testing.T) {
	t.Parallel()
	rounds := 3
	if long() {
		rounds = 30
	}
	for round := range rounds {
		c := start(t, 1, nil)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				conf := config.InMemory() // without a data directory
				conf.Storage.Backend, conf.Storage.Etcd.Servers, conf.Diagnostics.Log = config.StorageEtcd, c.endpoints(), quiet()
				ctx, cancel := bounded(t)
				defer cancel()
				s, err := keelson.Start(ctx, conf)
				if err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
				if err := s.Stop(ctx); err != nil {
					t.Errorf("round %d: stopping: %v", round, err)
				}
			})
		}
		wg.Wait()
	}
}

// within calls do until it succeeds.
func within(t testing.TB, what string, do func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := do()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestServerWithoutQuorum checks that writes fail with a clear error, and that requests which the cache can answer
// succeed.
func TestServerWithoutQuorum(t *testing.T) {
	t.Parallel()
	c := start(t, 3, nil)
	client := serve(t, c, func(c *config.Config) {
		c.Storage.Etcd.HealthcheckTimeout, c.Storage.Etcd.ReadycheckTimeout = time.Second, time.Second
	})
	ctx := t.Context()
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, configMap("one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); err != nil { // loads the objects
		t.Fatal(err)
	}
	c.stop(1)
	c.stop(2)
	_, err := client.CoreV1().ConfigMaps("default").Create(ctx, configMap("two"), metav1.CreateOptions{})
	if !apierrors.IsServiceUnavailable(err) && !apierrors.IsTimeout(err) {
		t.Errorf("a write without a quorum: %v", err)
	}
	if list, err := client.CoreV1().ConfigMaps("default").List(
		ctx, metav1.ListOptions{ResourceVersion: "0"},
	); err != nil || len(list.Items) != 1 {
		t.Errorf("a list of any revision: %v", err)
	}
	if _, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err == nil {
		t.Error("ready without a quorum")
	}
	c.restart(1)
	within(t, "writes work again", func() error {
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, configMap("three"), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	// The watches that the cache opened to etcd continue one after the other. The server reads these when it stops.
	within(t, "current reads work again", func() error {
		_, endpoints := client.CoreV1().Endpoints("default").List(ctx, metav1.ListOptions{})
		_, slices := client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{})
		_, leases := client.CoordinationV1().Leases("kube-system").List(ctx, metav1.ListOptions{})
		return errors.Join(endpoints, slices, leases)
	})
}

// TestPrefixIsAuthenticated checks that encrypted values authenticate their key in etcd, including the prefix, as in
// kube-apiserver.
func TestPrefixIsAuthenticated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: " +
		"[secrets]\n  providers: [{aesgcm: {keys: [{name: k, secret: AAECAwQFBgcICQoLDA0ODw==}]}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, 1, nil)
	client := serve(t, c, func(c *config.Config) {
		c.Storage.Etcd.Prefix, c.Storage.EncryptionConfigFile = "tenants/one/", file
	})
	ctx := t.Context()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	if _, err := client.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e, err := encrypt.Open(encrypt.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const key = "/tenants/one/secrets/default/one"
	stored, _, err := c.open(t, etcd.Options{}).Get(ctx, key, 0)
	if err != nil || stored.ModRevision == 0 {
		t.Fatalf("%+v, %v", stored, err)
	}
	secrets := e.Resource(corev1.Resource("secrets"))
	if plain, _, err := secrets.FromStore(ctx, key, stored.Value); err != nil ||
		!strings.HasPrefix(string(plain), "k8s\x00") {
		t.Errorf("%.20q, %v", plain, err)
	}
	if _, _, err := secrets.FromStore(ctx, "/registry/secrets/default/one", stored.Value); err == nil {
		t.Error("the value is read under another key")
	}
}
