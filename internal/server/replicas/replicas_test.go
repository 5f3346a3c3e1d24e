package replicas

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/auth/x509"
	"github.com/keelson-dev/keelson/internal/gateway/peers"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/authentication"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// accepting returns the authentication of a server with an authority for client certificates: its own new one, or,
// if caFile is not "", the one in that file.
func accepting(t *testing.T, caFile string) *authentication.Authentication {
	t.Helper()
	set, err := certs.Ensure(certs.Options{Admin: true})
	if err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.Storage.DataDir, c.Authentication.ClientCAFile = t.TempDir(), caFile
	a := &authentication.Authentication{Options: authentication.Options{Config: &c}}
	a.Authorities.Clients = x509.NewAuthorities(nil, "")
	if err := a.Authorities.Clients.Use(set.CA); err != nil {
		t.Fatal(err)
	}
	return a
}

// running returns a store with the record of a server whose accepted credentials are those of a.
func running(t *testing.T, a *authentication.Authentication) storage.Store {
	t.Helper()
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	log, written, ended := slog.New(slog.DiscardHandler), make(chan struct{}, 1), make(chan struct{})
	r := &peers.Record{
		Store: store, Server: "first", Host: "192.0.2.1", Port: 6443, Log: log, Accepts: func() peers.Accepts { return accepts(a) },
		Written: func(context.Context) { written <- struct{}{} },
	}
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		wait.Receive(t, "the end of the record's runner", ended)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	wait.Receive(t, "the record of the first server", written)
	return store
}

// TestServersWithoutACommonAuthority checks that a second server does not start if both have made an authority. If
// a flag sets the authority, the server only logs a warning.
func TestServersWithoutACommonAuthority(t *testing.T) {
	first := accepting(t, "")
	store := running(t, first)
	var logged strings.Builder
	log := slog.New(slog.NewTextHandler(&logged, nil))
	second := func() *peers.Record {
		return &peers.Record{Store: store, Server: "second", Host: "192.0.2.2", Port: 6443, Log: log}
	}

	const want = "the server at 192.0.2.1:6443 on the same store accepts client certificates of another authority"
	if err := Compare(t.Context(), accepting(t, ""), second(), log); err == nil || !strings.Contains(config.CommandLine(err), want) {
		t.Errorf("an authority of its own: %v, want %q", err, want)
	}
	record := second()
	if err := Compare(t.Context(), accepting(t, "/etc/ca.crt"), record, log); err != nil {
		t.Fatalf("an authority of a flag: %v", err)
	}
	for range 2 {
		record.Written(t.Context())
	}
	if n := strings.Count(logged.String(), want); n != 1 {
		t.Errorf("logged %d times:\n%s", n, logged.String())
	}
	if err := Compare(t.Context(), first, second(), log); err != nil {
		t.Errorf("the same authority: %v", err)
	}
}
