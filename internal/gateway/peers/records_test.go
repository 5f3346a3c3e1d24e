package peers

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"slices"
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

// kubeRecord is the record that kube-apiserver 1.36 on the machine "vm" has stored with its 222nd write.
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

// TestOthers checks which servers a server finds on the store. It does not find itself, and records of
// kube-apiserver have neither authorities nor keys.
func TestOthers(t *testing.T) {
	store, ctx := newStore(t), t.Context()
	foreign, err := base64.StdEncoding.DecodeString(kubeRecord)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{kubeServer: string(foreign), "text": "x"} {
		if _, err := store.Commit(ctx, storage.Txn{Ops: []storage.Op{storage.Put(recordPrefix+name, []byte(value))}}); err != nil {
			t.Fatal(err)
		}
	}
	server := func(name string, a Accepts) *Record {
		r := &Record{Store: store, Server: name, Host: "::1", Port: 1, Accepts: func() Accepts { return a }}
		if err := r.write(ctx); err != nil {
			t.Fatal(err)
		}
		return r
	}
	many := make([]string, 2*mostAccepted)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	named := append(slices.Clone(many[:mostAccepted]), andMore)
	one := server("a", Accepts{Authorities: []string{"x", "y"}, TokenKeys: many})
	two := server("b", Accepts{Authorities: []string{"z"}})
	for r, want := range map[*Record]string{
		one: "[{apiserver-wlv32tlttr4jl3gtroqexyxapa 127.0.0.1:36443 {[] []}} {b [::1]:1 {[z] []}}]",
		two: "[{a [::1]:1 {[x y] " + fmt.Sprint(named) + "}} {apiserver-wlv32tlttr4jl3gtroqexyxapa 127.0.0.1:36443 {[] []}}]",
		{Store: store, Server: "b"}: "[{a [::1]:1 {[x y] " + fmt.Sprint(named) + "}} " +
			"{apiserver-wlv32tlttr4jl3gtroqexyxapa 127.0.0.1:36443 {[] []}} {b [::1]:1 {[z] []}}]", // another run of b
	} {
		others, err := r.Others(ctx)
		if got := fmt.Sprint(others); err != nil || got != want {
			t.Errorf("%s: %s, %v\nwant %s", r.Server, got, err, want)
		}
	}
	two.Accepts = nil
	if err := two.write(ctx); err != nil {
		t.Fatal(err)
	}
	if others, err := one.Others(ctx); err != nil || len(others) != 2 || len(others[1].Accepts.Authorities) > 0 {
		t.Errorf("the annotations of an earlier write are still there: %v, %v", others, err)
	}
}

func TestSeparate(t *testing.T) {
	list := func(s string) []string { return strings.Fields(s) }
	for _, c := range []struct {
		a, b     string
		separate bool
	}{{"x", "y", true}, {"x y", "y z", false}, {"x", "x", false}, {"", "x", false}, {"x", "", false}, {"", "", false}, {"x", "y ...", false}} {
		authorities, keys := Accepts{Authorities: list(c.a)}.Separate(Accepts{Authorities: list(c.b), TokenKeys: list("k")})
		if authorities != c.separate || keys {
			t.Errorf("%q, %q: %v, %v", c.a, c.b, authorities, keys)
		}
		if authorities, keys = (Accepts{TokenKeys: list(c.a)}).Separate(Accepts{TokenKeys: list(c.b)}); authorities || keys != c.separate {
			t.Errorf("keys %q, %q: %v, %v", c.a, c.b, authorities, keys)
		}
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

// TestLeave checks that a server removes its own record for good, and keeps the record of its successor.
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
