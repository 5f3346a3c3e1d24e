package encrypt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/encrypt/kmstest"
)

func startPlugin(t *testing.T, socket string) *kmstest.Plugin {
	t.Helper()
	p, err := kmstest.Start(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// socketIn returns a path that is short enough for the address of a Unix socket.
func socketIn(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func kmsProvider(name, socket string) string {
	return fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: 'unix://%s', timeout: 500ms}", name, socket)
}

func TestKMS(t *testing.T) {
	ctx := context.Background()
	socket := socketIn(t)
	p := startPlugin(t, socket)
	text := document(entry("secrets", kmsProvider("vault", socket), identityProvider))
	e := open(t, text)
	value := mustStore(t, e, someKey, plain)
	if !strings.HasPrefix(value, "k8s:enc:kms:v2:vault:") {
		t.Fatalf("begins with %.30q", value)
	}
	for range 100 {
		mustRead(t, e, someKey, mustStore(t, e, someKey, plain), false)
	}
	if encrypts, decrypts := p.Calls(); encrypts != 1 || decrypts != 0 {
		t.Errorf("100 writes and reads took %d and %d calls", encrypts, decrypts)
	}
	mustRead(t, e, someKey, plain, true)

	// Another Encryption stands for another replica, or for the same server after a restart.
	other := open(t, text)
	for range 10 {
		mustRead(t, other, someKey, value, false)
	}
	if _, decrypts := p.Calls(); decrypts != 1 {
		t.Errorf("10 reads of one seed took %d calls", decrypts)
	}
	if _, _, err := read(other, "/registry/secrets/ns/other", value); err == nil {
		t.Error("a value can be copied to another key")
	}
	for i := len("k8s:enc:kms:v2:vault:"); i < len(value); i++ {
		changed := []byte(value)
		changed[i] ^= 1
		if got, _, err := read(e, someKey, string(changed)); err == nil {
			t.Errorf("byte %d can be changed: %q", i, got)
		}
	}

	// After a rotation, values are written with the old key until the next poll.
	if err := p.Rotate(); err != nil {
		t.Fatal(err)
	}
	mustRead(t, e, someKey, value, false)
	if err := e.current.Load().pollPlugins(ctx); err != nil {
		t.Fatal(err)
	}
	mustRead(t, e, someKey, value, true)
	mustRead(t, e, someKey, mustStore(t, e, someKey, plain), false)
}

func TestKMSFails(t *testing.T) {
	ctx := context.Background()
	socket := socketIn(t)
	p := startPlugin(t, "")
	text := document(entry("secrets", kmsProvider("vault", socket)))

	// The plug-in is started after the server.
	e := open(t, text)
	if _, err := e.Resource(secrets).ToStore(ctx, someKey, []byte(plain)); err == nil ||
		!strings.Contains(err.Error(), "not ready") {
		t.Fatalf("written without a plug-in: %v", err)
	}
	if err := e.Healthy(ctx); err == nil {
		t.Error("healthy without a plug-in")
	}
	if err := p.Serve(socket); err != nil {
		t.Fatal(err)
	}
	plug := e.current.Load().plugins[0]
	deadline := time.Now().Add(20 * time.Second)
	for plug.poll(ctx) != nil {
		if time.Now().After(deadline) {
			t.Fatal(plug.poll(ctx))
		}
	}
	if err := e.Healthy(ctx); err != nil {
		t.Error(err)
	}
	value := mustStore(t, e, someKey, plain)

	p.SetHealth("sealed")
	if err := plug.poll(ctx); err == nil || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("error %v", err)
	}
	if err := e.Healthy(ctx); err == nil {
		t.Error("healthy although the plug-in is not")
	}
	// Writes continue for sourceLifetime and then fail. Values whose key is cached can still be read.
	mustStore(t, e, someKey, plain)
	plug.writing.validUntil.Store(time.Now().Add(-time.Second).UnixNano())
	if _, err := e.Resource(secrets).ToStore(ctx, someKey, []byte(plain)); err == nil ||
		!strings.Contains(err.Error(), "expired") {
		t.Errorf("written with an expired seed: %v", err)
	}
	mustRead(t, e, someKey, value, false)
	p.SetHealth("ok")
	if err := plug.poll(ctx); err != nil {
		t.Fatal(err)
	}
	mustStore(t, e, someKey, plain)

	// A value with another seed cannot be read without the plug-in, nor with another plug-in.
	cold := open(t, text)
	p.FailWith(errors.New("sealed"))
	if _, _, err := read(cold, someKey, value); err == nil || !strings.Contains(err.Error(), "failed to decrypt DEK") {
		t.Errorf("error %v", err)
	}
	p.FailWith(nil)
	mustRead(t, cold, someKey, value, false)
	stranger := socketIn(t)
	startPlugin(t, stranger)
	wrong := open(t, document(entry("secrets", kmsProvider("vault", stranger))))
	if _, _, err := read(wrong, someKey, value); err == nil {
		t.Error("another plug-in reads it")
	}
	renamed := open(t, document(entry("secrets", kmsProvider("other", socket))))
	if _, _, err := read(renamed, someKey, value); err == nil ||
		!strings.Contains(err.Error(), "no matching prefix found") {
		t.Errorf("error %v", err)
	}
}

func TestReload(t *testing.T) {
	name := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first := keys("aesgcm", "k1", secretFrom("old"))
	write(document(entry("secrets", first)))
	e, err := Open(Options{File: name, Reload: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	value := mustStore(t, e, someKey, plain)
	mustRead(t, e, someKey, value, false)

	// An invalid configuration is not used.
	write("nonsense")
	if err := e.Reload(t.Context(), os.ReadFile); err == nil {
		t.Error("nonsense was loaded")
	}
	write(document(entry("secrets", kmsProvider("vault", socketIn(t)), first)))
	if err := e.Reload(t.Context(), os.ReadFile); err == nil {
		t.Error("a plug-in that does not answer was taken")
	}
	mustRead(t, e, someKey, value, false)

	write(document(entry("secrets", keys("secretbox", "k2", secretFrom("new")), first)))
	if err := e.Reload(t.Context(), os.ReadFile); err != nil {
		t.Fatal(err)
	}
	mustRead(t, e, someKey, value, true)
	if value := mustStore(t, e, someKey, plain); !strings.HasPrefix(value, "k8s:enc:secretbox:v1:k2:") {
		t.Errorf("stored as %.40q", value)
	}
}
