package etcd

import (
	"errors"
	"testing"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
	"github.com/keelson-dev/keelson/test/metamorphic"
)

// world is a cluster of one member, with a store that is sometimes closed and opened again.
func world(name string, o etcd.Options, cached cache.Options) metamorphic.World {
	var c *cluster
	return metamorphic.World{
		Name: name, Cache: cached,
		Open: func(t *testing.T) storage.Store {
			c = start(t, 1, nil)
			return c.open(t, o)
		},
		Reopen: func(t *testing.T, s storage.Store) storage.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return c.open(t, o)
		},
	}
}

func worlds() []metamorphic.World {
	return []metamorphic.World{
		metamorphic.Memory(),
		world("etcd", etcd.Options{}, cache.Options{}),
		world("etcd, no objects in memory", etcd.Options{}, cache.Options{Memory: metamorphic.NoObjects}),
		world(
			"etcd with a prefix, tiny cache", etcd.Options{Prefix: "/elsewhere"}, cache.Options{WindowBytes: 1, EncodingBudget: 1},
		),
	}
}

// TestMetamorphicStores and TestMetamorphicAPI run the same random operations on the embedded engine and on etcd.
func TestMetamorphicStores(t *testing.T) {
	if err := metamorphic.Stores(t, metamorphic.Seed(t), metamorphic.Steps(1000, 10_000), worlds()...); err != nil {
		t.Error(err)
	}
}

func TestMetamorphicAPI(t *testing.T) {
	if err := metamorphic.API(t, metamorphic.Seed(t), metamorphic.Steps(400, 10_000), worlds()...); err != nil {
		t.Error(err)
	}
}

// TestPlantedDifferences checks that a faulty store on etcd is found.
func TestPlantedDifferences(t *testing.T) {
	for name, fault := range metamorphic.Faults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faulty := world("faulty", etcd.Options{}, cache.Options{})
			open := faulty.Open
			faulty.Open, faulty.Reopen = func(t *testing.T) storage.Store { return fault(open(t)) }, nil
			var d *metamorphic.Difference
			if err := metamorphic.Stores(t, 1, 3000, metamorphic.Memory(), faulty); !errors.As(err, &d) {
				t.Errorf("stores: %v", err)
			}
		})
	}
}
