package clock_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/config"
)

func Example() {
	ctx := context.Background()
	c := clock.New(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	conf := config.InMemory()
	conf.Testing.Clock, conf.Serving.InProcess, conf.Diagnostics.Log = c, true, slog.New(slog.DiscardHandler)
	s, err := keelson.Start(ctx, conf)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Stop(ctx)
	c.Advance(36 * time.Hour)
	m, err := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps("default").Create(
		ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.CreationTimestamp.UTC().Format(time.RFC3339))
	// Output: 2030-01-02T12:00:00Z
}
