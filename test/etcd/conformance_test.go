package etcd

import (
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
	"github.com/keelson-dev/keelson/internal/storage/storagetest"
)

// TestConformance gives each test a cluster of its own, because the suite counts revisions.
func TestConformance(t *testing.T) {
	var clusters sync.Map // the cluster of each test, by its stores
	open := func(t *testing.T, c *cluster) storage.Store {
		s := c.open(t, etcd.Options{})
		clusters.Store(s, c)
		return s
	}
	storagetest.Run(t, func(t *testing.T) storage.Store {
		return open(t, start(t, 1, nil))
	}, storagetest.WithReopen(func(t *testing.T, s storage.Store) storage.Store {
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		c, _ := clusters.Load(s)
		return open(t, c.(*cluster))
	}))
}
