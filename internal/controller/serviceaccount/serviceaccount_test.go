package serviceaccount_test

import (
	"context"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/client/clienttest"
	"github.com/keelson-dev/keelson/internal/controller/serviceaccount"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var accounts = corev1.SchemeGroupVersion.WithResource("serviceaccounts")

func create(t *testing.T, api *clienttest.API, resource string, obj registry.Object) {
	t.Helper()
	r := client.CreateRequest{Resource: corev1.SchemeGroupVersion.WithResource(resource), Object: obj}
	if _, err := api.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// awaitAccount waits until a namespace has the account, and returns it.
func awaitAccount(t *testing.T, api *clienttest.API, namespace string) registry.Object {
	t.Helper()
	return wait.Value(t, "the account of "+namespace, func() (registry.Object, error) {
		got, err := api.Get(t.Context(), client.Ref{Resource: accounts, Namespace: namespace, Name: "default"})
		if err != nil && !kerrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return got, err
	})
}

// TestAccounts has a namespace with an account, one without, one that is being deleted, and one that is created later.
func TestAccounts(t *testing.T) {
	api := clienttest.New(t, "", "test")
	ending := namespace("ending")
	ending.Finalizers = []string{"example.com/wait"}
	for _, n := range []*corev1.Namespace{namespace("own"), namespace("new"), ending} {
		create(t, api, "namespaces", n)
	}
	create(t, api, "serviceaccounts", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "own"}})
	own := awaitAccount(t, api, "own")
	if _, err := api.Delete(t.Context(), client.DeleteRequest{
		Ref: client.Ref{Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Name: "ending"},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan bool)
	c := &serviceaccount.Controller{Registry: api.Registry, Client: api.Client, Log: slog.New(slog.DiscardHandler)}
	go func() { c.Run(ctx); close(done) }()
	defer func() { stop(); <-done }()

	made := awaitAccount(t, api, "new")
	if m := made.GetManagedFields(); len(m) > 0 && m[0].Manager != "kube-controller-manager" {
		t.Errorf("the account is managed by %s", m[0].Manager)
	}
	create(t, api, "namespaces", namespace("later"))
	awaitAccount(t, api, "later")
	if got := awaitAccount(t, api, "own"); got.GetUID() != own.GetUID() {
		t.Error("an account that was there was replaced")
	}
	_, err := api.Get(t.Context(), client.Ref{Resource: accounts, Namespace: "ending", Name: "default"})
	if !kerrors.IsNotFound(err) {
		t.Errorf("a namespace that is being deleted got an account: %v", err)
	}
}
