package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/controller/bootstrap"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/storage"
	"github.com/keelson-dev/keelson/storage/embedded"
	"github.com/keelson-dev/keelson/storage/encrypt"
)

// openStore opens the engine that the configuration names.
func (s *Server) openStore(ctx context.Context) error {
	if s.config.Storage == StorageEtcd {
		return s.openEtcd(ctx)
	}
	if s.config.OpenStore != nil {
		store, err := s.config.OpenStore(ctx)
		if err != nil {
			return err
		}
		s.keepAll(store)
		return nil
	}
	options := embedded.Options{Logger: s.log, OnFailure: func(err error) {
		s.fail(fmt.Errorf("the store failed: %w", err))
	}}
	if s.config.Storage == StorageMemory {
		options.InMemory = true
	} else {
		options.Dir = filepath.Join(s.config.DataDir, storeName)
		if err := notRestoring(s.config.DataDir); err != nil {
			return err
		}
	}
	options.HistoryWindow = s.config.HistoryWindow
	if s.config.AdjustEngine != nil {
		s.config.AdjustEngine(&options)
	}
	store, err := embedded.Open(options)
	switch {
	case errors.Is(err, embedded.ErrLocked):
		return fmt.Errorf("the data directory %s is used by another process", s.config.DataDir)
	case err != nil:
		return fmt.Errorf("cannot open the store: %w", err)
	}
	s.keepAll(store)
	return nil
}

// notRestoring refuses a data directory whose restore was interrupted: a server would
// begin with nothing where its operator expects what was saved.
func notRestoring(dataDir string) error {
	if _, err := os.Stat(StoreDir(dataDir)); err == nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dataDir, RestoringName)); err != nil {
		return nil
	}
	return fmt.Errorf("a restore into the data directory %s was interrupted: run it again, or remove %s to begin with nothing", dataDir, RestoringName)
}

// keepAll makes a store that of every resource.
func (s *Server) keepAll(store storage.Store) {
	s.store = store
	s.places = []place{{store: store, holds: func(*registry.Kind, string) bool { return true }}}
}

// openEncryption reads how values are encrypted.
func (s *Server) openEncryption() error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	s.encryptionMetrics = encrypt.NewMetrics(bootstrap.ServerName(host))
	if s.config.EncryptionProviderConfig == "" {
		return nil
	}
	options := encrypt.Options{
		File: s.config.EncryptionProviderConfig, Reload: s.config.EncryptionReload, Metrics: s.encryptionMetrics, Logger: s.log,
	}
	if s.config.Storage == StorageEtcd {
		options.Root = s.config.Etcd.root()
	}
	s.encryption, err = encrypt.Open(options)
	return err
}

// transformer is what the values of a resource go through.
func (s *Server) transformer(gr schema.GroupResource) registry.Transformer {
	return s.encryption.Resource(gr)
}
