package registry_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/api/write/writetest"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/encrypt"
)

// Keys of 16 bytes.
const (
	oldKey = "{name: old, secret: AAECAwQFBgcICQoLDA0ODw==}"
	newKey = "{name: new, secret: Dw4NDAsKCQgHBgUEAwIBAA==}"
)

func encryption(t *testing.T, providers string) *encrypt.Encryption {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets," +
		" pods]\n  providers: [" + providers + "]\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := encrypt.Open(encrypt.Options{File: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// secretsOn returns secrets on a store, encrypted as providers say; "" does not
// encrypt.
func secretsOn(t *testing.T, store storage.Store, providers string) *registry.Resource {
	t.Helper()
	c := cache.New(cache.Options{Store: store})
	t.Cleanup(c.Close)
	all, err := registry.New(resource.Kinds(features.Gates{}), store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if providers != "" {
		e := encryption(t, providers)
		all.Transform(func(gr schema.GroupResource) registry.Transformer { return e.Resource(gr) })
	}
	return all.Resource(schema.GroupResource{Resource: "secrets"})
}

func createSecret(t *testing.T, r *registry.Resource, name string) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{"a": "b"}},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"password": []byte("hunter2")},
	}
	if _, err := writer.Create(context.Background(), r, "ns", secret, writetest.Options{}); err != nil {
		t.Fatal(err)
	}
}

// touch updates a secret without a change.
func touch(r *registry.Resource, name string) (registry.Result, error) {
	return writer.Update(context.Background(), r, nil, "ns", name, writetest.Options{},
		func(c *write.Current) (registry.Object, error) {
			return c.Copy(), nil
		})
}

func storedSecret(t *testing.T, store storage.Store, name string) storage.Entry {
	t.Helper()
	e, _, err := store.Get(context.Background(), "/registry/secrets/ns/"+name, 0)
	if err != nil || e.ModRevision == 0 {
		t.Fatalf("%s: %v", name, err)
	}
	return e
}

// password reads a secret from the cache.
func password(t *testing.T, r *registry.Resource, name string) (string, error) {
	t.Helper()
	ctx := context.Background()
	snap, err := r.Reader.Current(ctx)
	if err != nil {
		t.Fatal(err)
	}
	o, ok, _ := snap.Get(ctx, "ns/"+name)
	if !ok {
		t.Fatalf("%s is not in the cache", name)
	}
	if o, err = r.Reader.Readable(ctx, o); err != nil {
		return "", err
	}
	obj, err := r.Decoder.Decode(t.Context(), o)
	if err != nil {
		return "", err
	}
	return string(obj.(*corev1.Secret).Data["password"]), nil
}

func TestEncryptedValues(t *testing.T) {
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	createSecret(t, secretsOn(t, store, ""), "plain")

	// Encryption begins: what is plain is read, and encrypted by the next write,
	// also one that changes nothing.
	first := "{aesgcm: {keys: [" + oldKey + "]}}, {identity: {}}"
	r := secretsOn(t, store, first)
	createSecret(t, r, "sealed")
	if v := storedSecret(t, store, "sealed").Value; !bytes.HasPrefix(v, []byte("k8s:enc:aesgcm:v1:old:")) ||
		bytes.Contains(v, []byte("hunter2")) {
		t.Fatalf("stored as %q", v)
	}
	for _, name := range []string{"plain", "sealed"} {
		if got, err := password(t, r, name); err != nil || got != "hunter2" {
			t.Errorf("%s reads %q, error %v", name, got, err)
		}
	}
	before := storedSecret(t, store, "plain").ModRevision
	if _, err := touch(r, "plain"); err != nil {
		t.Fatal(err)
	}
	if e := storedSecret(t, store, "plain"); e.ModRevision == before ||
		!bytes.HasPrefix(e.Value, []byte("k8s:enc:aesgcm:v1:old:")) {
		t.Errorf("rewritten as %.30q", e.Value)
	}
	before = storedSecret(t, store, "sealed").ModRevision
	if _, err := touch(r, "sealed"); err != nil {
		t.Fatal(err)
	}
	if storedSecret(t, store, "sealed").ModRevision != before {
		t.Error("a write that changes nothing was written")
	}

	// Only another key: a value of the old key cannot be read. The error names the value, which stays.
	r = secretsOn(t, store, "{aesgcm: {keys: ["+newKey+"]}}, {identity: {}}")
	createSecret(t, r, "fresh")
	if got, err := password(t, r, "fresh"); err != nil || got != "hunter2" {
		t.Errorf("reads %q, error %v", got, err)
	}
	_, err = password(t, r, "sealed")
	if !kerrors.IsInternalError(err) || !strings.Contains(
		err.Error(), `unable to transform key "/registry/secrets/ns/sealed": no matching key was found`,
	) {
		t.Errorf("error %v", err)
	}
	if _, err := touch(r, "sealed"); !kerrors.IsInternalError(err) {
		t.Errorf("update: error %v", err)
	}
	if _, err := writer.Delete(
		context.Background(), r, "ns", "sealed", &metav1.DeleteOptions{}, nil,
	); !kerrors.IsInternalError(err) {
		t.Errorf("delete: error %v", err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "sealed", Namespace: "ns"}}
	if _, err := writer.Create(context.Background(), r, "ns", secret, writetest.Options{}); !kerrors.IsAlreadyExists(err) {
		t.Errorf("create: error %v", err)
	}
	if !r.Reader.Unreadable() {
		t.Error("nobody is told of an unreadable object")
	}

	// Both keys: rotation completes by writing each object.
	r = secretsOn(t, store, "{aesgcm: {keys: ["+newKey+", "+oldKey+"]}}")
	for _, name := range []string{"plain", "sealed", "fresh"} {
		if _, err := touch(r, name); err != nil {
			t.Fatal(err)
		}
		if v := storedSecret(t, store, name).Value; !bytes.HasPrefix(v, []byte("k8s:enc:aesgcm:v1:new:")) {
			t.Errorf("%s: rewritten as %.30q", name, v)
		}
	}

	// No configuration at all.
	r = secretsOn(t, store, "")
	if _, err := password(t, r, "fresh"); err == nil || !strings.Contains(err.Error(), "no encryption is configured") {
		t.Errorf("error %v", err)
	}
}

// late is a transformer that cannot read before it is ready.
type late struct{ ready bool }

func (l *late) ToStore(_ context.Context, _ string, plain []byte) ([]byte, error) { return plain, nil }
func (l *late) FromStore(_ context.Context, _ string, value []byte) ([]byte, bool, error) {
	if !l.ready {
		return nil, false, os.ErrDeadlineExceeded
	}
	return value, false, nil
}

// TestReadableLater reads an object whose provider did not answer when it came to
// the cache.
func TestReadableLater(t *testing.T) {
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	createSecret(t, secretsOn(t, store, ""), "one")
	c := cache.New(cache.Options{Store: store})
	defer c.Close()
	all, err := registry.New(resource.Kinds(features.Gates{}), store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	provider := &late{}
	all.Transform(func(schema.GroupResource) registry.Transformer { return provider })
	r := all.Resource(schema.GroupResource{Resource: "secrets"})
	if _, err := password(t, r, "one"); !kerrors.IsInternalError(err) {
		t.Errorf("error %v", err)
	}
	provider.ready = true
	if got, err := password(t, r, "one"); err != nil || got != "hunter2" {
		t.Errorf("reads %q, error %v", got, err)
	}
	if _, err := touch(r, "one"); err != nil {
		t.Error(err)
	}
}
