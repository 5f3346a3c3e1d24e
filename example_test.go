package keelson_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/config"
)

// exampleServer starts a server in memory, as ForTest(t) does for tests, but without a socket.
func exampleServer(change ...func(*config.Config)) *keelson.Server {
	c := config.InMemory()
	c.Serving.InProcess, c.Testing.Record, c.Diagnostics.Log = true, true, slog.New(slog.DiscardHandler)
	for _, f := range change {
		f(&c)
	}
	s, err := keelson.Start(context.Background(), c)
	if err != nil {
		log.Fatal(err)
	}
	return s
}

func ExampleStart() {
	ctx := context.Background()
	c := config.InMemory()
	c.Diagnostics.Log = slog.New(slog.DiscardHandler) // the default is slog.Default()
	s, err := keelson.Start(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Stop(ctx)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range namespaces.Items {
		fmt.Println(n.Name, n.Status.Phase)
	}
	// Output:
	// default Active
	// kube-node-lease Active
	// kube-public Active
	// kube-system Active
}

func ExampleServer_RESTConfigFor() {
	ctx := context.Background()
	s := exampleServer()
	defer s.Stop(ctx)
	jane := kubernetes.NewForConfigOrDie(s.RESTConfigFor("jane", "developers"))
	_, err := jane.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	fmt.Println(kerrors.IsForbidden(err))
	// Output: true
}

func ExampleServer_Snapshot() {
	ctx := context.Background()
	s := exampleServer()
	defer s.Stop(ctx)
	team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	if _, err := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Namespaces().Create(
		ctx, team, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	prepared, err := s.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer prepared.Close()
	for _, name := range []string{"a", "b"} {
		fork, err := prepared.Start(ctx) // in a test: prepared.ForTest(t)
		if err != nil {
			log.Fatal(err)
		}
		maps := kubernetes.NewForConfigOrDie(fork.RESTConfig()).CoreV1().ConfigMaps("team")
		if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			log.Fatal(err)
		}
		_, err = maps.Get(ctx, "a", metav1.GetOptions{})
		fmt.Println(name, "sees a:", err == nil)
		if err := fork.Stop(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// a sees a: true
	// b sees a: false
}

func ExampleServer_InjectN() {
	ctx := context.Background()
	s := exampleServer()
	defer s.Stop(ctx)
	s.InjectN(1, keelson.Match{Verb: "update", Resource: "configmaps"}, keelson.Fail{Code: http.StatusConflict})
	maps := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps("default")
	m, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	for kerrors.IsConflict(err) || err == nil && m.Data == nil {
		m.Data = map[string]string{"key": "value"}
		if _, err = maps.Update(ctx, m, metav1.UpdateOptions{}); kerrors.IsConflict(err) {
			fmt.Println(err)
		}
	}
	for _, r := range s.Requests(keelson.Match{Resource: "configmaps", Name: "a"}) {
		fmt.Println(r.User, r.Verb, r.Namespace, r.Name, r.Code)
	}
	// Output:
	// Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again
	// kubernetes-admin create default a 201
	// kubernetes-admin update default a 409
	// kubernetes-admin update default a 200
}

func ExampleServer_Inject() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	s := exampleServer()
	defer s.Stop(context.Background())
	remove := s.Inject(keelson.Match{User: "jane"}, keelson.Delay{For: time.Hour})
	defer remove()
	_, err := kubernetes.NewForConfigOrDie(s.RESTConfigFor("jane")).CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output: true
}

func ExampleServer_WaitForIdle() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := exampleServer()
	defer s.Stop(ctx)
	namespaces := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Namespaces()
	team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	if _, err := namespaces.Create(ctx, team, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	if err := namespaces.Delete(ctx, "team", metav1.DeleteOptions{}); err != nil {
		log.Fatal(err)
	}
	if err := s.WaitForIdle(ctx); err != nil { // until the namespace controller has deleted what is in the namespace
		log.Fatal(err)
	}
	_, err := namespaces.Get(ctx, "team", metav1.GetOptions{})
	fmt.Println(kerrors.IsNotFound(err))
	// Output: true
}

func ExampleServer_WaitForQuiet() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := exampleServer()
	defer s.Stop(ctx)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	go labelNamespaces(ctx, client) // stands for the controller under test; it is a client of the server
	team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, team, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	if err := s.WaitForQuiet(ctx, 500*time.Millisecond); err != nil { // until the controller has handled the namespace
		log.Fatal(err)
	}
	got, err := client.CoreV1().Namespaces().Get(ctx, "team", metav1.GetOptions{})
	fmt.Println(got.Labels["owner"], err)
	// Output: nobody <nil>
}

// labelNamespaces is a controller: it writes a label into each namespace without one, until ctx ends.
func labelNamespaces(ctx context.Context, client kubernetes.Interface) {
	factory := informers.NewSharedInformerFactory(client, 0)
	label := func(o any) {
		if n := o.(*corev1.Namespace); n.Labels["owner"] == "" {
			patch := []byte(`{"metadata":{"labels":{"owner":"nobody"}}}`)
			_, _ = client.CoreV1().Namespaces().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
	_, _ = factory.Core().V1().Namespaces().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: label})
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}

func ExampleServer_LoadFS() {
	ctx := context.Background()
	s := exampleServer()
	defer s.Stop(ctx)
	files := fstest.MapFS{"objects/all.yaml": {Data: []byte(`
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: team}
data: {key: value}
---
apiVersion: v1
kind: Namespace
metadata: {name: team}
`)}}
	if err := s.LoadFS(ctx, files, "objects"); err != nil { // or s.Load(ctx, "testdata")
		log.Fatal(err)
	}
	m, err := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps("team").Get(ctx, "a", metav1.GetOptions{})
	fmt.Println(m.Data, err)
	// Output: map[key:value] <nil>
}

func ExampleServeWebhook() {
	hook, err := keelson.ServeWebhook(http.NotFoundHandler()) // the handler of a controller's webhook server
	if err != nil {
		log.Fatal(err)
	}
	defer hook.Close()
	c := hook.ClientConfig("/validate") // the clientConfig of a ValidatingWebhookConfiguration
	fmt.Println(*c.URL == hook.URL+"/validate", len(c.CABundle) > 0)
	// Output: true true
}

// ExampleStart_clock moves the clock of API objects forward.
func ExampleStart_clock() {
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
