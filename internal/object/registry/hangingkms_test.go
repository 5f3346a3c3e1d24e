package registry_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/write/writetest"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/encrypt/kmstest"
)

// pluggedServer is a registry with a cache of its own on a shared store, whose secrets
// are encrypted with a KMS plug-in. The plug-in may take an hour for an answer.
func pluggedServer(t *testing.T, store storage.Store, p *kmstest.Plugin) *registry.Registry {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // short enough for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	if err := p.Serve(socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	c := cache.New(cache.Options{Store: store})
	t.Cleanup(c.Close)
	all, err := registry.New(resource.Kinds(features.Gates{}), store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	e := encryption(t, fmt.Sprintf("{kms: {apiVersion: v2, name: vault, endpoint: 'unix://%s', timeout: 1h}}", socket))
	all.Transform(func(gr schema.GroupResource) registry.Transformer { return e.Resource(gr) })
	return all
}

func named(t *testing.T, all *registry.Registry, resource string) *registry.Resource {
	t.Helper()
	return all.Resource(schema.GroupResource{Resource: resource})
}

// TestHangingPluginDelaysOnlyItsObjects runs two servers on one store, one of them with a KMS plug-in that hangs.
// Reads of namespaces must continue there. Reads of Secrets must fail until the plug-in answers; then Secrets can be
// read, and listed by field and label.
func TestHangingPluginDelaysOnlyItsObjects(t *testing.T) {
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	plugin, err := kmstest.Start("")
	if err != nil {
		t.Fatal(err)
	}
	sibling := plugin.Clone()
	server, reader := pluggedServer(t, store, plugin), pluggedServer(t, store, sibling)
	secrets, namespaces := named(t, reader, "secrets"), named(t, reader, "namespaces")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	pods := named(t, reader, "pods")
	for _, r := range []*registry.Resource{secrets, namespaces, pods} {
		if _, err := r.Reader.Current(ctx); err != nil {
			t.Fatal(err)
		}
	}
	sibling.Hang()

	const count = 8
	for i := range count {
		createSecret(t, named(t, server, "secrets"), fmt.Sprintf("s%d", i))
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Labels: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	named(t, server, "pods").Kind.Version("v1").Default(pod)
	if _, err := writer.Create(ctx, named(t, server, "pods"), "ns", pod, writetest.Options{}); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "after"}}
	if _, err := writer.Create(ctx, named(t, server, "namespaces"), "", namespace, writetest.Options{}); err != nil {
		t.Fatal(err)
	}
	snap, err := namespaces.Reader.Current(ctx)
	if err != nil {
		t.Fatalf("namespaces are held by the plug-in for secrets: %v", err)
	}
	if _, ok, err := snap.Get(ctx, "after"); !ok || err != nil {
		t.Error("the new namespace is not there")
	}
	if snap, err = secrets.Reader.Current(ctx); err != nil {
		t.Fatal(err)
	}
	if held := snap.Snapshot(); held.Len() != count || held.Unread() != count || !secrets.Reader.Unreadable() {
		t.Fatalf("%d secrets, %d unread", held.Len(), held.Unread())
	}
	o, _, _ := snap.Get(ctx, "ns/s0")
	short, end := context.WithTimeout(ctx, 10*time.Millisecond)
	_, err = secrets.Reader.Readable(short, o)
	end()
	if !kerrors.IsInternalError(err) || !strings.Contains(
		err.Error(), `unable to transform key "/registry/secrets/ns/s0": failed to decrypt DEK`,
	) {
		t.Errorf("error %v", err)
	}

	sibling.Resume()
	for secrets.Reader.Unreadable() || pods.Reader.Unreadable() {
		if ctx.Err() != nil {
			t.Fatal("20 s after the plug-in answers, secrets cannot be read")
		}
		time.Sleep(time.Millisecond)
	}
	if _, decrypts := sibling.Calls(); decrypts != 1 {
		t.Errorf("the plug-in was asked %d times for one key", decrypts)
	}
	if snap, err = pods.Reader.Current(ctx); err != nil {
		t.Fatal(err)
	}
	listed := 0
	snap.Snapshot().Index("spec.nodeName", "n1", "", "ns/", func(o *cache.Object) bool {
		if slices.Contains(o.Labels, cache.Label{Key: "a", Value: "b"}) {
			listed++
		}
		return true
	})
	if listed != 1 {
		t.Errorf("%d pods are listed by field and label, want 1", listed)
	}
	if got, err := password(t, secrets, "s3"); err != nil || got != "hunter2" {
		t.Errorf("reads %q, error %v", got, err)
	}
}

// TestHangingPluginAtTheStart checks that loading secrets does not wait for a hanging plug-in either.
func TestHangingPluginAtTheStart(t *testing.T) {
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	plugin, err := kmstest.Start("")
	if err != nil {
		t.Fatal(err)
	}
	sibling := plugin.Clone()
	server, reader := pluggedServer(t, store, plugin), pluggedServer(t, store, sibling)
	for i := range 8 {
		createSecret(t, named(t, server, "secrets"), fmt.Sprintf("s%d", i))
	}
	sibling.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	secrets := named(t, reader, "secrets")
	if snap, err := secrets.Reader.Current(ctx); err != nil || snap.Snapshot().Unread() != 8 {
		t.Fatalf("%v, %v", snap, err)
	}
	sibling.Resume()
	if got, err := password(t, secrets, "s7"); err != nil || got != "hunter2" {
		t.Errorf("reads %q, error %v", got, err)
	}
}
