package peers

import (
	"encoding/base64"
	"log/slog"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

func newStore(t *testing.T) storage.Store {
	t.Helper()
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// kubeRecord is what kube-apiserver 1.36 on the machine "vm" has stored with its 222nd write.
const (
	kubeServer = "apiserver-wlv32tlttr4jl3gtroqexyxapa"
	kubeRecord = "azhzAAoPCgJ2MRIJRW5kcG9pbnRzEnEKTAoAEgAaACIAKgAyADjeAUIAWjkKEWFwaXNlcnZlcklkZW50aXR5EiRhcGlzZXJ2ZXItd2x2MzJ0bHR0cjRq" +
		"bDNndHJvcWV4eXhhcGESIQoNCgkxMjcuMC4wLjEaABoQCgVodHRwcxDbnAIaA1RDUBoAIgA="
)

// TestRecordOfKubeAPIServer checks that records are read and written as kube-apiserver does.
func TestRecordOfKubeAPIServer(t *testing.T) {
	want, err := base64.StdEncoding.DecodeString(kubeRecord)
	if err != nil {
		t.Fatal(err)
	}
	store, ctx := newStore(t), t.Context()
	r := &Record{Store: store, Server: kubeServer, Host: "127.0.0.1", Port: 36443, Log: slog.New(slog.DiscardHandler)}
	for range 222 {
		if err := r.write(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if got, _, err := store.Get(ctx, "/registry/peerserverleases/"+kubeServer, 0); err != nil || string(got.Value) != string(want) {
		t.Errorf("%q, %v, want %q", got.Value, err, want)
	}
	if got, err := Address(ctx, store, kubeServer); got != "127.0.0.1:36443" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAddressFails(t *testing.T) {
	store, ctx := newStore(t), t.Context()
	for name, value := range map[string]string{"empty": "k8s\x00\n\x0f\n\x02v1\x12\tEndpoints\x12\x00", "text": "x"} {
		if _, err := store.Commit(ctx, storage.Txn{Ops: []storage.Op{storage.Put(recordPrefix+name, []byte(value))}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"none": "the server none has no record", "empty": "has no address", "text": "the record of server text: not a protobuf object",
	} {
		if got, err := Address(ctx, store, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestLeave checks that a server removes its own record for good, and leaves that of its successor alone.
func TestLeave(t *testing.T) {
	store, ctx := newStore(t), t.Context()
	server := func(port int) *Record {
		return &Record{Store: store, Server: "s", Host: "::1", Port: port, Log: slog.New(slog.DiscardHandler)}
	}
	old, next := server(1), server(2)
	for _, r := range []*Record{old, next} {
		if err := r.write(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := Address(ctx, store, "s"); got != "[::1]:2" {
		t.Errorf("after the first has left: %q, %v", got, err)
	}
	if err := next.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	if err := next.write(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := Address(ctx, store, "s"); err == nil {
		t.Errorf("after both have left: %q", got)
	}
}
