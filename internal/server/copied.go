package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/api/undelete"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// Copied is a store that was restored out of a copy, with its past, to plan what comes back out of it to another server.
type Copied struct {
	Dir string
	// EncryptionConfigFile is the EncryptionConfiguration of the server that has written the copy, "" if it had none.
	EncryptionConfigFile string
	// Elsewhere finds objects of the server to which objects come back.
	Elsewhere undelete.Elsewhere
}

// StartCopied starts a server in this process that only reads a store: the subresources undelete and revert, lists with asOf, discovery.
// It has neither a socket nor controllers, opens no connections (but to plug-ins of EncryptionConfigFile), and refuses to change the
// store. Its client is an administrator with the token AdminToken. The caller must call Stop.
func StartCopied(ctx context.Context, c Copied) (*Server, error) {
	const long = 100 * 365 * 24 * time.Hour // nothing that the copy has is given up or expires
	settings := config.Config{Storage: config.Storage{
		Backend: config.StorageMemory, EncryptionConfigFile: c.EncryptionConfigFile, HistoryWindow: long,
	}}
	settings.Serving.InProcess = true
	settings.Authorization.Modes = []string{config.ModeAlwaysAllow}
	settings.API.RuntimeConfig = []string{"api/all=true"} // whatever the other server serves
	settings.Requests.NoPriorityAndFairness = true
	settings.Requests.Timeout = 24 * time.Hour // a plan asks the other server about each object
	settings.Diagnostics.Log = slog.New(slog.DiscardHandler)
	return Start(ctx, settings.Complete(), Options{elsewhere: c.Elsewhere, OpenStore: func(context.Context) (storage.Store, error) {
		s, err := embedded.Open(embedded.Options{
			Dir: c.Dir, HistoryWindow: long, CompactInterval: long, SweepInterval: long, ReserveBytes: -1,
			Retention: storage.Retention{Rules: []storage.RetentionRule{{Keep: long}}, Bytes: -1}, Logger: settings.Diagnostics.Log,
		})
		if err != nil {
			return nil, err
		}
		return unchanged{s}, nil
	}})
}

// copiedSteps are the steps of the start of a server that only reads a copy.
func (s *starting) copiedSteps(ctx context.Context) []step {
	return []step{
		{"read the feature gates", s.readGates},
		{"read which versions are served", s.readVersions},
		{"parse the service range", s.parseServices},
		{"open no connections", func() error { s.calls = webhook.Options{Dial: noConnection}; return nil }},
		{"read the encryption configuration", s.chooseStores},
		{"listen", func() error { return s.listen(ctx) }},
		{"open the store, and make certificates and kinds", func() error {
			return errors.Join(s.stores.Open(ctx), s.makeKinds(), s.makeIdentity())
		}},
		{"bind the resources to the store", s.bindResources},
		{"build authentication", func() error { return s.buildAuthentication(ctx) }},
		{"build authorization", s.buildAuthorization},
		{"build the API", func() error { return s.buildAPI(ctx) }},
		{"read the definitions of custom resources", func() error {
			s.work.Go(customRunner, background.Forever(s.api.custom.Run))
			return s.api.custom.Ready(ctx)
		}},
		{"build the HTTP server", s.buildHTTP},
		{"serve", func() error { s.http.serve(s.listener, s.ending); return nil }},
	}
}

// Client returns a client of the administrator of a server with Serving.InProcess.
func (s *Server) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx) },
		DisableCompression: true,
	}}
}

// unchanged is a store that refuses every change.
type unchanged struct{ *embedded.Store }

var errUnchanged = errors.New("a copy is only read")

// Commit implements storage.Store.
func (unchanged) Commit(context.Context, storage.Txn) (int64, error) { return 0, errUnchanged }

// noConnection is the webhook.DialFunc of a server that opens no connections, such as those to conversion webhooks.
func noConnection(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("webhooks are not called for what is in a copy")
}
