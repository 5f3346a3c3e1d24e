package keelson_test

import (
	"errors"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
)

func inProcess(c *config.Config) { c.Serving.InProcess = true }

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"key": "value"},
	}
}

func clientFor(tb testing.TB, c *rest.Config) *kubernetes.Clientset {
	tb.Helper()
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// TestServerWithoutSocket checks that clients in the same process can read, write and watch at the same time
// without a socket, and get an error after the server has stopped.
func TestServerWithoutSocket(t *testing.T) {
	c := config.InMemory()
	c.Serving.InProcess = true
	files := openFiles(t)
	s := start(t, c)
	if now := openFiles(t); len(now) > len(files) {
		t.Errorf("the server has opened files: %v, before: %v", now, files)
	}
	client := clientset(t, s)
	const watches = 20
	var events []<-chan string
	for range watches {
		w, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		names := make(chan string, 8)
		events = append(events, names)
		go func() {
			defer close(names)
			for e := range w.ResultChan() {
				if m, ok := e.Object.(*corev1.ConfigMap); ok && m.Name == "a" {
					names <- m.Name
				}
			}
		}()
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, names := range events {
		if name := <-names; name != "a" {
			t.Errorf("watch %d got %q", i, name)
		}
	}
	if s.Kubeconfig() != nil {
		t.Error("a server that nobody can reach has a kubeconfig")
	}
	stop(t, s)
	for _, names := range events {
		for range names {
			t.Error("an event after the end")
		}
	}
	_, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "a", metav1.GetOptions{})
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the end of the server: %v", err)
	}
}

// TestOtherUsers checks that users of RESTConfigFor may do what RBAC allows, with a socket and without.
func TestOtherUsers(t *testing.T) {
	for name, change := range map[string]func(*config.Config){"socket": func(*config.Config) {}, "pipe": inProcess} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := keelson.ForTest(t, change)
			jane := clientFor(t, s.RESTConfigFor("jane", "developers"))
			_, err := jane.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			if !kerrors.IsForbidden(err) {
				t.Errorf("jane without a role: %v", err)
			}
			master := clientFor(t, s.RESTConfigFor("root", "system:masters"))
			if _, err := master.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
			if a, b := s.RESTConfigFor("jane", "developers"), s.RESTConfigFor("jane"); a.BearerToken == b.BearerToken {
				t.Error("users with different groups have the same token")
			}
			wrong := s.RESTConfigFor("jane")
			wrong.BearerToken += "x"
			_, err = clientFor(t, wrong).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			if !kerrors.IsUnauthorized(err) {
				t.Errorf("with a wrong token: %v", err)
			}
		})
	}
}
