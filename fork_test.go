package keelson_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// BenchmarkFork starts servers from a snapshot with 1,000 objects.
func BenchmarkFork(b *testing.B) {
	for _, storage := range []string{config.StorageMemory, config.StorageEmbedded} {
		b.Run(storage, func(b *testing.B) {
			c := config.InMemory()
			c.Serving.InProcess, c.Storage.Backend = true, storage
			dir := b.TempDir()
			if storage == config.StorageEmbedded {
				c.Storage.DataDir = filepath.Join(dir, "first")
			}
			s := start(b, c)
			defer stop(b, s)
			createMany(b, clientset(b, s), 1000)
			p, err := s.Snapshot(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close() //nolint:errcheck // errors do not matter here
			benchmarkStarts(b, func() *keelson.Server {
				fork, err := p.Start(context.Background(), func(c *config.Config) {
					if storage == config.StorageEmbedded {
						c.Storage.DataDir = filepath.Join(dir, "fork")
					}
				})
				if err != nil {
					b.Fatal(err)
				}
				return fork
			}, func() { _ = os.RemoveAll(filepath.Join(dir, "fork")) })
		})
	}
}

// createMany creates n ConfigMaps.
func createMany(tb testing.TB, client *kubernetes.Clientset, n int) {
	tb.Helper()
	for i := range n {
		if _, err := client.CoreV1().ConfigMaps("default").Create(
			tb.Context(), configMap(fmt.Sprintf("many-%d", i)), metav1.CreateOptions{},
		); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestForks(t *testing.T) {
	for _, storage := range []string{config.StorageMemory, config.StorageEmbedded} {
		t.Run(storage, func(t *testing.T) {
			t.Parallel()
			testForks(t, storage)
		})
	}
}

// testForks checks that forks begin with the state of the snapshot, continue its resource versions and history, accept
// its credentials, and do not see each other's writes.
func testForks(t *testing.T, storage string) {
	dir := t.TempDir()
	configure := func(name string) func(*config.Config) {
		return func(c *config.Config) {
			if c.Storage.Backend = storage; storage == config.StorageEmbedded {
				c.Storage.DataDir = filepath.Join(dir, name)
			}
		}
	}
	s := keelson.ForTest(t, configure("first"))
	client := clientset(t, s)
	settle(t, s)
	createDefinition(t, s)
	before, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := client.CoreV1().ServiceAccounts("default").CreateToken(
		t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The snapshot has neither the deletion nor the creation that follow.
	if err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	createMany(t, client, 3)
	var forks []*kubernetes.Clientset
	for i := range 3 {
		fork := p.ForTest(t, configure(fmt.Sprint(i)))
		forks = append(forks, clientset(t, fork))
		forks[i].CoreV1().RESTClient()
		checkFork(t, fork, before, token.Status.Token)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(filepath.Join(dir, "first", "snapshots")); err == nil && len(names) > 0 {
		t.Errorf("the snapshot has left %v behind", names)
	}
	for i, client := range forks {
		for j := range forks {
			_, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), fmt.Sprintf("of-%d", j), metav1.GetOptions{})
			if i != j && !kerrors.IsNotFound(err) {
				t.Errorf("fork %d sees the object of fork %d: %v", i, j, err)
			}
		}
		if _, err := client.CoreV1().ConfigMaps("default").Create(
			t.Context(), configMap(fmt.Sprintf("of-%d", i)), metav1.CreateOptions{},
		); err != nil {
			t.Error(err)
		}
	}
}

// checkFork checks one fork of a server that had a ConfigMap and a token of the default service account.
func checkFork(t *testing.T, fork *keelson.Server, before *corev1.ConfigMap, token string) {
	t.Helper()
	client := clientset(t, fork)
	list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, m := range list.Items {
		found = found || m.Name == "a" && m.UID == before.UID && m.ResourceVersion == before.ResourceVersion
		if m.Name == "many-0" {
			t.Error("the fork has an object that was created after the snapshot")
		}
	}
	if !found {
		t.Errorf("the fork does not have the ConfigMap of the snapshot: %+v", list.Items)
	}
	w, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	next, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("next"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); fmt.Sprintf("%T", e.Object) != "*v1.ConfigMap" || e.Object.(*corev1.ConfigMap).UID != next.UID {
		t.Errorf("a watch from the resource version of the snapshot got %+v", e)
	}
	old, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "2"})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Stop()
	if e := <-old.ResultChan(); e.Object == nil {
		t.Errorf("a watch from the first resource versions got %+v", e)
	}
	account := fork.RESTConfig()
	account.CertData, account.KeyData, account.BearerToken = nil, nil, token
	review, err := clientFor(t, account).AuthenticationV1().SelfSubjectReviews().Create(
		t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != "system:serviceaccount:default:default" {
		t.Errorf("a token of the snapshot's server: %v %+v", err, review)
	}
	if got := crdClient(t, fork).Get().AbsPath("/apis/example.com/v1/widgets").Do(t.Context()).Error(); got != nil {
		t.Errorf("the custom resource is not served: %v", got)
	}
}

// createDefinition creates the definition of widgets.example.com and waits until they are served.
func createDefinition(t *testing.T, s *keelson.Server) {
	t.Helper()
	preserve := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve},
				},
			}},
		},
	}
	body, err := json.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	client := crdClient(t, s)
	if err := client.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").Body(body).
		Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	wait.NoError(t, "the widgets to be served", func() error {
		return client.Get().AbsPath("/apis/example.com/v1/widgets").Do(t.Context()).Error()
	})
}

func crdClient(t *testing.T, s *keelson.Server) rest.Interface {
	t.Helper()
	return clientset(t, s).CoreV1().RESTClient()
}

// TestForkOfOneServer checks Fork, with which the caller has no snapshot to close. The fork outlives the first
// server.
func TestForkOfOneServer(t *testing.T) {
	c := config.InMemory()
	c.Serving.InProcess = true
	s := start(t, c)
	createMany(t, clientset(t, s), 1)
	fork, err := s.Fork(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, fork)
	stop(t, s)
	if _, err := clientset(t, fork).CoreV1().ConfigMaps("default").Get(
		context.Background(), "many-0", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := s.Fork(t.Context()); err == nil {
		t.Error("a stopped server was forked")
	}
}
