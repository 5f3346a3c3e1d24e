package encrypt

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/encrypt/kmstest"
)

// waitForHungCalls waits until n calls of the plug-in hang.
func waitForHungCalls(t *testing.T, p *kmstest.Plugin, n int) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		held, changed := p.HungCalls()
		if held >= n {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%d calls hang after 20 s, want %d", held, n)
		}
	}
}

// TestKMSHangs checks that a read does not wait for a plug-in, and that callers who need the same key share one call.
func TestKMSHangs(t *testing.T) {
	writer, reader := socketIn(t), socketIn(t)
	p := startPlugin(t, writer)
	sibling := p.Clone()
	if err := sibling.Serve(reader); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sibling.Stop)
	value := mustStore(t, open(t, document(entry("secrets", kmsProvider("vault", writer)))), someKey, plain)
	patient := "kms: {apiVersion: v2, name: vault, endpoint: 'unix://" + reader + "', timeout: 1h}"
	e := open(t, document(entry("secrets", patient)))
	sibling.Hang()

	transformer := e.Resource(secrets)
	_, _, err := transformer.FromStore(context.Background(), someKey, []byte(value))
	var pending *storage.PendingError
	if !errors.As(err, &pending) {
		t.Fatalf("error %v", err)
	}
	if held, _ := sibling.HungCalls(); held != 0 {
		t.Fatalf("%d calls to a plug-in that was not to be asked", held)
	}
	const waiting = 10
	ends := make(chan error, waiting)
	for range waiting {
		go func() { ends <- pending.Obtain(context.Background()) }()
	}
	waitForHungCalls(t, sibling, 1)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if err := pending.Obtain(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader that left: %v", err)
	}
	sibling.Resume()
	for range waiting {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	if _, decrypts := sibling.Calls(); decrypts != 1 {
		t.Errorf("%d calls for one key", decrypts)
	}
	if got, _, err := transformer.FromStore(context.Background(), someKey, []byte(value)); err != nil ||
		string(got) != plain {
		t.Errorf("reads %q, error %v", got, err)
	}
}

// TestOnReload checks that the function is called when another configuration is in use, and that its argument
// returns the prefixes that can no longer be read.
func TestOnReload(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	second := keys("aesgcm", "second", secretOf(16))
	e := open(t, document(entry("secrets", keys("aesgcm", "first", secretOf(16)), second, identityProvider)))
	var dropped []string
	var first Dropped
	e.OnReload(func(d Dropped) {
		if dropped = d(secrets); first == nil {
			first = d
		}
	})
	for _, c := range []struct{ document, want string }{
		{document(entry("secrets", second, identityProvider)), "k8s:enc:aesgcm:v1:first:"},
		{document(entry("'*.*'", identityProvider, second)), ""},
		{document(entry("secrets", second)), "<none>"},
		{document(entry("configmaps", second)), "k8s:enc:aesgcm:v1:second:"},
	} {
		dropped = nil
		err := e.Reload(t.Context(), func(string) ([]byte, error) { return []byte(c.document), nil })
		got := strings.Join(dropped, " ")
		if len(dropped) == 1 && got == "" {
			got = "<none>"
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %q (%v), want %q", c.document, got, err, c.want)
		}
	}
	all := document(entry("secrets", keys("aesgcm", "first", secretOf(16)), identityProvider))
	if err := e.Reload(t.Context(), func(string) ([]byte, error) { return []byte(all), nil }); err != nil {
		t.Fatal(err)
	}
	if again := first(secrets); len(again) != 1 || again[0] != "k8s:enc:aesgcm:v1:second:" {
		t.Errorf("a key that is back: %q", again)
	}
	if plain, encrypted := []byte("k8s\x00"), []byte("k8s:enc:aesgcm:v1:a:x"); !Holds([]string{""}, plain) ||
		Holds([]string{""}, encrypted) || !Holds([]string{"k8s:enc:aesgcm:v1:a:"}, encrypted) || Holds(nil, plain) {
		t.Error("Holds")
	}
}
