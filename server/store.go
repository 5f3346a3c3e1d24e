package server

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/keelson-dev/keelson/storage/embedded"
)

// openStore opens the engine that the configuration names.
func (s *Server) openStore() error {
	options := embedded.Options{Logger: s.log, OnFailure: func(err error) {
		s.fail(fmt.Errorf("the store failed: %w", err))
	}}
	if s.config.Storage == StorageMemory {
		options.InMemory = true
	} else {
		options.Dir = filepath.Join(s.config.DataDir, storeName)
	}
	store, err := embedded.Open(options)
	switch {
	case errors.Is(err, embedded.ErrLocked):
		return fmt.Errorf("the data directory %s is used by another process", s.config.DataDir)
	case err != nil:
		return fmt.Errorf("cannot open the store: %w", err)
	}
	s.store = store
	return nil
}
