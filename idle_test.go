package keelson_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// waitForIdle waits until a server is idle, at most a minute.
func waitForIdle(tb testing.TB, s *keelson.Server) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	if err := s.WaitForIdle(ctx); err != nil {
		tb.Fatal(err)
	}
}

// TestWaitForIdle checks that after WaitForIdle each controller has finished all work that earlier writes caused,
// and work that followed from that. The test has no other waits.
func TestWaitForIdle(t *testing.T) {
	for name, change := range map[string]func(*config.Config){"socket": func(*config.Config) {}, "pipe": inProcess} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := keelson.ForTest(t, change)
			waitForIdle(t, s)
			client := clientset(t, s)
			role, err := client.RbacV1().ClusterRoles().Get(t.Context(), "admin", metav1.GetOptions{})
			if err != nil || len(role.Rules) == 0 {
				t.Errorf("the role admin is not aggregated: %v", err)
			}
			for i := range 5 {
				namespace := fmt.Sprint("team-", i)
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
				if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				waitForIdle(t, s)
				checkNamespace(t, client, namespace)
				checkOwners(t, s, client, namespace)
				if err := client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				waitForIdle(t, s)
				if _, err := client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); !kerrors.IsNotFound(err) {
					t.Errorf("the deleted namespace is still there: %v", err)
				}
			}
			checkQuota(t, s, client)
			checkDefinition(t, s)
		})
	}
}

// checkNamespace checks that a namespace has the objects that controllers create in it.
func checkNamespace(t *testing.T, client *kubernetes.Clientset, namespace string) {
	t.Helper()
	if _, err := client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// checkOwners checks that an object is deleted with its owner, also if that is deleted because of its own owner.
func checkOwners(t *testing.T, s *keelson.Server, client *kubernetes.Clientset, namespace string) {
	t.Helper()
	maps := client.CoreV1().ConfigMaps(namespace)
	var owners []metav1.OwnerReference
	for _, name := range []string{"a", "b", "c"} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
		made, err := maps.Create(t.Context(), m, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owners = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: made.UID}}
	}
	waitForIdle(t, s)
	if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForIdle(t, s)
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Items {
		if m.Name != "kube-root-ca.crt" {
			t.Errorf("%s is still there although its owner is gone", m.Name)
		}
	}
}

// checkQuota checks that the usage of a quota is counted, and counted again when an object is deleted.
func checkQuota(t *testing.T, s *keelson.Server, client *kubernetes.Clientset) {
	t.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"count/configmaps": resource.MustParse("9")},
	}}
	quotas := client.CoreV1().ResourceQuotas("default")
	if _, err := quotas.Create(t.Context(), q, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForIdle(t, s)
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("counted"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2", "1"} { // with kube-root-ca.crt
		waitForIdle(t, s)
		got, err := quotas.Get(t.Context(), "q", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if used := got.Status.Used["count/configmaps"]; used.String() != want {
			t.Errorf("the quota says that %s ConfigMaps are used, want %s", used.String(), want)
		}
		err = client.CoreV1().ConfigMaps("default").Delete(t.Context(), "counted", metav1.DeleteOptions{})
		if err != nil && !kerrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

// checkDefinition checks that a definition becomes established and that its APIService exists.
func checkDefinition(t *testing.T, s *keelson.Server) {
	t.Helper()
	client := crdClient(t, s)
	definition := strings.SplitAfterN(definitionYAML, "---", 3)[2]
	if err := client.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").
		SetHeader("Content-Type", "application/yaml").Body([]byte(definition)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	waitForIdle(t, s)
	for _, path := range []string{"/apis/example.com/v1/widgets", "/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com"} {
		if err := client.Get().AbsPath(path).Do(t.Context()).Error(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := client.Delete().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com").
		Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	waitForIdle(t, s)
	for _, path := range []string{
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com",
	} {
		if err := client.Get().AbsPath(path).Do(t.Context()).Error(); !kerrors.IsNotFound(err) {
			t.Errorf("%s after the deletion: %v", path, err)
		}
	}
}

// TestNotIdle checks that the error of WaitForIdle names the work that is not finished.
func TestNotIdle(t *testing.T) {
	s := keelson.ForTest(t, inProcess)
	client := clientset(t, s)
	waitForIdle(t, s)
	busy := func(want string) {
		t.Helper()
		// Other work may have to end before the error names only this one.
		wait.Seen(t, fmt.Sprintf("an error with %q", want), func() (bool, string) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := s.WaitForIdle(ctx)
			return errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), want), fmt.Sprint(err)
		})
	}
	remove := s.Inject(keelson.Match{Verb: "get", Name: "late"}, keelson.Delay{For: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = client.CoreV1().ConfigMaps("default").Get(ctx, "late", metav1.GetOptions{}) // it is canceled
	}()
	wait.Until(t, "the request to come", func() bool { return len(s.Requests(keelson.Match{Name: "late"})) > 0 })
	busy("1 requests are served (get /api/v1/namespaces/default/configmaps/late of ")
	remove()
	cancel()
	<-answered
	waitForIdle(t, s)

	w, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{}) // nobody reads it
	if err != nil {
		t.Fatal(err)
	}
	waitForIdle(t, s)
	for i := range 40 { // 4 MB, more than the connection and the client hold
		m := configMap(fmt.Sprint("big-", i))
		m.Data["x"] = strings.Repeat("x", 100<<10)
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	busy("changes of configmaps are being delivered")
	w.Stop()
	waitForIdle(t, s)

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stays"}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Finalizers: []string{"example.com/a"}}}
	if _, err := client.CoreV1().ConfigMaps("stays").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Namespaces().Delete(t.Context(), "stays", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	busy("the namespace-controller has 1 tasks")
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := client.CoreV1().ConfigMaps("stays").Patch(
		t.Context(), "m", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForIdle(t, s)
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "stays", metav1.GetOptions{}); !kerrors.IsNotFound(err) {
		t.Errorf("the deleted namespace is still there: %v", err)
	}
}
