package encrypt

import (
	"context"
	"errors"
	"testing"
	"time"

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

// TestOnReload checks that the function is called when another configuration is in use.
func TestOnReload(t *testing.T) {
	e := open(t, document(entry("secrets", identityProvider)))
	told := 0
	e.OnReload(func() { told++ })
	e.notifyReload()
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}
