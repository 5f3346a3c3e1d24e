package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/config"
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
		ended := make(chan struct{})
		go func() {
			select {
			case err := <-s.Failed():
				s.log.Error("reads of the copy are not served any more", "error", err)
			case <-ended:
			}
		}()
		return func() {
			close(ended)
			ctx, cancel := context.WithTimeout(context.Background(), endStaleTime)
			defer cancel()
			if err := s.Stop(ctx); err != nil {
				s.log.Warn("the server for reads of the copy did not end cleanly", "error", err)
			}
		}, nil
	}
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
