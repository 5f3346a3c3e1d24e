package controllertest

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson"
)

// TestGreeter starts a server and the controller, and waits for its greeting. The server and the controller end with
// the test.
func TestGreeter(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(keelson.ForTest(t).RESTConfig())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, client) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	maps := client.CoreV1().ConfigMaps("default")
	named := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{Label: "world"}}}
	if _, err := maps.Create(ctx, named, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	greeted := func(ctx context.Context) (bool, error) {
		got, err := maps.Get(ctx, "a", metav1.GetOptions{})
		return err == nil && got.Data["greeting"] == "Hello, world!", err
	}
	if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, greeted); err != nil {
		t.Fatalf("waiting for the greeting: %v", err)
	}
}
