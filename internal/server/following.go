package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/identity"
	"github.com/keelson-dev/keelson/internal/server/offsite"
)

// endStaleTime is how long the server of a standby waits for requests in flight before the standby takes over.
const endStaleTime = 2 * time.Second

// ServeStale returns what a standby calls (offsite.Standby.Serve) to answer reads while it follows another server.
func ServeStale(c config.Config, o Options) func(context.Context, *offsite.Following) (end func(), err error) {
	c.Storage.Backup = config.Default().Storage.Backup // it writes no copy
	c.Serving.Shutdown.Delay, c.Serving.Shutdown.WatchGrace, c.Serving.Shutdown.SendRetryAfter = 0, 0, false
	return func(ctx context.Context, f *offsite.Following) (end func(), err error) {
		if err := hasAuthority(&c); err != nil {
			return nil, err
		}
		o := o
		o.Following = f
		s, err := Start(ctx, c, o)
		if err != nil {
			return nil, fmt.Errorf("cannot answer reads while following (--serve-stale): %w", err)
		}
		s.log.Info("serving reads of the copy that is followed", "url", s.URL(), "revision", f.State().Revision)
		s.work.Go("report of the end of reads", func(ctx context.Context) error {
			select {
			case err := <-s.Failed():
				return fmt.Errorf("reads of the copy are not served any more: %w", err)
			case <-ctx.Done():
				return nil
			}
		})
		return func() {
			ctx, cancel := context.WithTimeout(context.Background(), endStaleTime)
			defer cancel()
			if err := s.Stop(ctx); err != nil {
				s.log.Warn("the server for reads of the copy did not end cleanly", "error", err)
			}
		}, nil
	}
}

// followingSteps are the steps of the start of a server that follows another one. The standby has locked the data directory, the other
// server makes the objects that every server starts with, and runs the controllers.
func (s *starting) followingSteps(ctx context.Context) []step {
	return []step{
		{"read the feature gates", s.readGates},
		{"read which versions are served", s.readVersions},
		{"parse the service range", s.parseServices},
		{"read how connections are opened", s.readEgress},
		{"read the encryption configuration", s.chooseStores},
		{"open what requests are audited with", s.openAudit},
		{"read the tracing configuration", func() error { return s.openTracing(ctx) }},
		{"listen", func() error { return s.listen(ctx) }},
		{"open the store, and make certificates and kinds", func() error {
			return errors.Join(s.stores.Open(ctx), s.makeKinds(), s.makeIdentity())
		}},
		{"bind the resources to the store", s.bindResources},
		{"build authentication", func() error { return s.buildAuthentication(ctx) }},
		{"build authorization", s.buildAuthorization},
		{"build the API", func() error { return s.buildAPI(ctx) }},
		{"read who may do what", func() error { return s.authorization.Start(ctx, s.api.client, true) }},
		{"follow flow schemas and priority levels", func() error { return s.startFairness(ctx) }},
		{"start background work", func() error { s.startFollowing(); return nil }},
		{"build the HTTP server", s.buildHTTP},
		{"serve profiles on a socket", func() error { return s.openDebugSocket(ctx) }},
		{"write the kubeconfig", func() error { return s.identity.WriteKubeconfig() }},
		{"serve", func() error { s.http.serve(s.listener, s.ending); return nil }},
	}
}

// startFollowing starts the background work of a server that follows another one.
func (s *starting) startFollowing() {
	s.work.Go(customRunner, background.Forever(s.api.custom.Run))
	s.work.Go(extensionsRunner, background.Forever(s.api.aggregator.Run))
	s.authentication.Follow()
	s.config.files.Start(s.work)
	s.work.Go("own certificates", background.Forever(s.identity.Run))
	s.config.Following.Register(s.metrics)
}

// hasAuthority returns an error if a standby would make an authority of its own, which clients of the other server do not know.
func hasAuthority(c *config.Config) error {
	if !identity.OwnClientAuthority(c) {
		return nil
	}
	key := filepath.Join(datadir.Certificates(c.Storage.DataDir), "ca.key")
	if _, err := os.Stat(key); err != nil {
		return fmt.Errorf("a standby cannot answer reads (--serve-stale) without the authority of the server that it follows; "+
			"copy the directory %s of that server to this one: %w", datadir.PKI, err)
	}
	return nil
}
