package metamorphic

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// worlds returns the worlds of every test in this package. Those with etcd are in test/etcd.
func worlds(t *testing.T) []World {
	dropping := embeddedWorld("memory, cache dropped at once", cache.Options{IdleDrop: 2 * time.Millisecond}, inMemory)
	dropping.Reopen = nil
	restless := embeddedWorld("memory, objects loaded and dropped all the time", cache.Options{Memory: Restless}, inMemory)
	restless.Reopen = nil
	return []World{
		embeddedWorld("disk, no objects in memory", cache.Options{Memory: NoObjects}, onDisk),
		restless,
		embeddedWorld("disk", cache.Options{}, onDisk),
		Memory(),
		embeddedWorld("tiny ring and tables, tiny cache", cache.Options{WindowBytes: 1, EncodingBudget: 1}, tiny),
		dropping,
	}
}

func TestStores(t *testing.T) {
	if err := Stores(t, Seed(t), Steps(3000, 30_000), worlds(t)...); err != nil {
		t.Error(err)
	}
}

func TestAPI(t *testing.T) {
	if err := API(t, Seed(t), Steps(800, 30_000), worlds(t)...); err != nil {
		t.Error(err)
	}
}

// TestPast compares reads of the past in compacted stores with those in a twin.
func TestPast(t *testing.T) {
	inMemory := keeping("memory, kept", cache.Options{}, inMemory)
	inMemory.Reopen = nil
	worlds := []World{
		twin(), inMemory, keeping("disk, kept", cache.Options{}, onDisk),
		keeping("disk, kept, no objects in memory", cache.Options{Memory: NoObjects}, onDisk),
		keeping("tiny tables, kept", cache.Options{WindowBytes: 1, EncodingBudget: 1}, tiny),
	}
	if err := Past(t, Seed(t), Steps(800, 30_000), worlds...); err != nil {
		t.Error(err)
	}
}

// TestPlantedDifferences shows that a world with a fault is found.
func TestPlantedDifferences(t *testing.T) {
	healthy := Memory()
	for name, fault := range Faults() {
		t.Run(name, func(t *testing.T) {
			faulty := healthy
			faulty.Name = "faulty"
			faulty.Open = func(t *testing.T) storage.Store { return fault(healthy.Open(t)) }
			var d *Difference
			if err := Stores(t, 1, 3000, healthy, faulty); !errors.As(err, &d) {
				t.Errorf("stores: %v", err)
			}
		})
	}
	t.Run("past", func(t *testing.T) {
		faulty := keeping("faulty", cache.Options{}, inMemory)
		open := faulty.Open
		faulty.Open = func(t *testing.T) storage.Store { return earlyReader{open(t).(*embedded.Store)} }
		faulty.Reopen = nil
		var d *Difference
		if err := Past(t, 1, 3000, twin(), faulty); !errors.As(err, &d) {
			t.Error(err)
		}
	})
	t.Run("API", func(t *testing.T) {
		faulty := healthy
		faulty.Name = "faulty"
		faulty.Open = func(t *testing.T) storage.Store { return &carelessStore{Store: healthy.Open(t)} }
		var d *Difference
		if err := API(t, 1, 3000, healthy, faulty); !errors.As(err, &d) {
			t.Error(err)
		}
	})
}

// earlyReader reads the past one revision too early.
type earlyReader struct{ *embedded.Store }

func (e earlyReader) RangeAt(ctx context.Context, scope storage.Scope, r storage.RangeRequest) (storage.RangeResult, error) {
	r.Revision--
	return e.Store.RangeAt(ctx, scope, r)
}
