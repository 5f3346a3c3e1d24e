package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/auth/serviceaccount"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// snapshotsName is the directory in a data directory that has the snapshots of a running server.
const snapshotsName = "snapshots"

// Snapshot is a server at one moment: its objects with their history, its certificates and the key of its tokens.
// Servers that are started from it continue independently of each other. Its methods may be called concurrently.
type Snapshot struct {
	config settings
	image  *embedded.Image
	// dir contains the files of a server with a data directory. For a server without one, pairs and keys are set
	// instead.
	dir   string
	pairs map[string]certs.Pair
	keys  *serviceaccount.Keys
}

// imageStore is a store that can create images.
type imageStore interface {
	Image(ctx context.Context, dir string) (*embedded.Image, error)
}

// Snapshot keeps the state of the server with all acknowledged writes. The caller must call Close of the snapshot. It
// fails if the objects are in etcd.
func (s *Server) Snapshot(ctx context.Context) (*Snapshot, error) {
	store, ok := s.stores.Main.(imageStore)
	if !ok {
		return nil, errors.New("a snapshot needs the embedded store or the store in memory")
	}
	p := &Snapshot{config: *s.config}
	if keys := s.authentication.Keys.Own; keys != nil {
		if err := keys.EnsureOwnKeyFile(ctx); err != nil {
			return nil, err
		}
		p.keys = keys
	}
	p.pairs = s.identity.Pairs()
	if data := s.config.Storage.DataDir; data != "" {
		p.dir, p.keys = filepath.Join(data, snapshotsName, rand.Text()), nil
		if err := datadir.CopyFiles(datadir.Certificates(data), datadir.Certificates(p.dir)); err != nil {
			return nil, errors.Join(fmt.Errorf("cannot create a snapshot: %w", err), os.RemoveAll(p.dir))
		}
	}
	var err error
	if p.image, err = store.Image(ctx, datadir.StoreDir(p.dir)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	return p, nil
}

// Start starts a server from the snapshot, usually with the configuration of the original server. The storage
// backend must be the same. A server with a data directory needs a directory of its own.
func (s *Snapshot) Start(ctx context.Context, c config.Config) (*Server, error) {
	if c.Storage.Backend != s.config.Storage.Backend || (c.Storage.DataDir == "") != (s.config.Storage.DataDir == "") {
		return nil, errors.New("a server that is started from a snapshot needs the same storage, and a data directory of " +
			"its own if the snapshot is one of a server with a data directory")
	}
	o := s.config.Options
	o.origin = s
	return Start(ctx, c, o)
}

// serves reports whether a server with the configuration c serves the same built-in versions as the original
// server. The result is true if s is nil.
func (s *Snapshot) serves(c *settings) bool {
	return s == nil || reflect.DeepEqual(s.config.API, c.API)
}

// Close removes the files of the snapshot. Servers that were started from it are not affected.
func (s *Snapshot) Close() error {
	err := s.image.Close()
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// copyKeys copies the certificates and keys of the snapshot to the data directory of a new server.
func (s *Snapshot) copyKeys(dataDir string) error {
	if s == nil || s.dir == "" {
		return nil
	}
	return datadir.CopyFiles(datadir.Certificates(s.dir), datadir.Certificates(dataDir))
}

// certificates returns the certificates of the original server if it had no data directory, and an empty map if s
// is nil.
func (s *Snapshot) certificates() map[string]certs.Pair {
	if s == nil {
		return map[string]certs.Pair{}
	}
	return maps.Clone(s.pairs)
}

// removeSnapshots removes the snapshots that an earlier process has left behind.
func removeSnapshots(dataDir string, log *slog.Logger) {
	if err := os.RemoveAll(filepath.Join(dataDir, snapshotsName)); err != nil {
		log.Warn("old snapshots cannot be removed", "error", err)
	}
}
