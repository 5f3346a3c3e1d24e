package memoryetcd

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
	"github.com/keelson-dev/keelson/internal/storage/storagetest"
)

// start returns the address of a server that ends with the test.
func start(t *testing.T, o Options) string {
	t.Helper()
	o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(o)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

func connect(t *testing.T, address string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// open returns a store on the server at address.
func open(t *testing.T, address string) storage.Store {
	t.Helper()
	s, err := etcd.Open(t.Context(), etcd.Options{
		Endpoints: []string{"http://" + address}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestConformance runs the conformance suite of stores on a Store of package etcd that is connected to this
// server.
func TestConformance(t *testing.T) {
	var addresses sync.Map // address of the server, by store
	make := func(t *testing.T, address string) storage.Store {
		s := open(t, address)
		addresses.Store(s, address)
		return s
	}
	storagetest.Run(t, func(t *testing.T) storage.Store {
		return make(t, start(t, Options{}))
	}, storagetest.WithReopen(func(t *testing.T, s storage.Store) storage.Store {
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		address, _ := addresses.Load(s)
		return make(t, address.(string))
	}))
}

// TestPlainHTTP checks the answers to programs that start etcd.
func TestPlainHTTP(t *testing.T) {
	address := start(t, Options{})
	for path, want := range map[string]string{
		"/health": `"health":"true"`, "/version": `"etcdserver":"` + Version + `"`, "/readyz": "ok", "/livez": "ok",
	} {
		r, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %q %v", path, r.StatusCode, body, err)
		}
		if strings.HasPrefix(want, `"`) && !json.Valid(body) {
			t.Errorf("%s is not JSON: %q", path, body)
		}
	}
}

// TestServersAreApart checks that two servers share no data.
func TestServersAreApart(t *testing.T) {
	a, b := connect(t, start(t, Options{})), connect(t, start(t, Options{}))
	if _, err := a.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	r, err := b.Get(t.Context(), "key")
	if err != nil || r.Count != 0 || r.Header.Revision != 1 {
		t.Errorf("the other server: %+v %v", r, err)
	}
}

func TestLeasesExpire(t *testing.T) {
	var mu sync.Mutex
	now := time.Unix(1000, 0)
	c := connect(t, start(t, Options{Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }}))
	ctx := t.Context()
	granted, err := c.Grant(ctx, 10)
	if err != nil || granted.TTL != 10 {
		t.Fatal(granted, err)
	}
	for _, key := range []string{"a", "b"} {
		if _, err := c.Put(ctx, key, "", clientv3.WithLease(granted.ID)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Put(ctx, "b", ""); err != nil { // b no longer has the lease
		t.Fatal(err)
	}
	left, err := c.TimeToLive(ctx, granted.ID, clientv3.WithAttachedKeys())
	if err != nil || left.TTL != 10 || len(left.Keys) != 1 || string(left.Keys[0]) != "a" {
		t.Errorf("the lease: %+v %v", left, err)
	}
	deletions := c.Watch(ctx, "a", clientv3.WithFilterPut())
	mu.Lock()
	now = now.Add(11 * time.Second)
	mu.Unlock()
	select {
	case r := <-deletions:
		if len(r.Events) != 1 || string(r.Events[0].Kv.Key) != "a" {
			t.Errorf("watched: %+v", r)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("a was not deleted within 30 s")
	}
	if r, err := c.Get(ctx, "b"); err != nil || r.Count != 1 {
		t.Errorf("b: %+v %v", r, err)
	}
	if _, err := c.Put(ctx, "c", "", clientv3.WithLease(granted.ID)); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("a put with the lease: %v", err)
	}
}

// TestLimits checks the limits of etcd.
func TestLimits(t *testing.T) {
	c := connect(t, start(t, Options{MaxRequestBytes: 1000, MaxTxnOps: 2}))
	ctx := t.Context()
	if _, err := c.Put(ctx, "a", strings.Repeat("x", 1000)); !errors.Is(err, rpctypes.ErrRequestTooLarge) {
		t.Errorf("a large put: %v", err)
	}
	put := func(key string) clientv3.Op { return clientv3.OpPut(key, "") }
	if _, err := c.Txn(ctx).Then(put("a"), put("b"), put("c")).Commit(); !errors.Is(err, rpctypes.ErrTooManyOps) {
		t.Errorf("a large transaction: %v", err)
	}
	if _, err := c.Txn(ctx).Then(put("a"), put("a")).Commit(); !errors.Is(err, rpctypes.ErrDuplicateKey) {
		t.Errorf("a transaction that puts a key twice: %v", err)
	}
	nested := clientv3.OpTxn(nil, []clientv3.Op{put("a")}, nil)
	for range maxNesting {
		nested = clientv3.OpTxn(nil, []clientv3.Op{nested}, nil)
	}
	deep := connect(t, start(t, Options{}))
	if _, err := deep.Do(ctx, nested); !errors.Is(err, rpctypes.ErrTooManyOps) {
		t.Errorf("a transaction in %d others: %v", maxNesting, err)
	}
	if r, err := c.Get(ctx, "", clientv3.WithPrefix()); err != nil || r.Header.Revision != 1 {
		t.Errorf("something was changed: %+v %v", r, err)
	}
}

// TestProgress checks that a watch without changes gets the current revision, both on request and at each
// interval.
func TestProgress(t *testing.T) {
	c := connect(t, start(t, Options{ProgressInterval: 10 * time.Millisecond}))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	watched := c.Watch(ctx, "nothing", clientv3.WithProgressNotify(), clientv3.WithCreatedNotify())
	if r := <-watched; !r.Created {
		t.Fatalf("%+v", r)
	}
	if _, err := c.Put(ctx, "a", ""); err != nil {
		t.Fatal(err)
	}
	for r := range watched {
		if !r.IsProgressNotify() {
			t.Fatalf("%+v", r)
		}
		if r.Header.Revision == 2 {
			return
		}
	}
	t.Fatal("no response has revision 2")
}

// TestServeAfterStop: if Serve is called after Stop, it closes its listener.
func TestServeAfterStop(t *testing.T) {
	s := New(Options{Log: slog.New(slog.DiscardHandler)})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if err := s.Serve(l); err != nil {
		t.Error(err)
	}
	if c, err := l.Accept(); err == nil {
		c.Close()
		t.Error("the listener is open")
	}
}
