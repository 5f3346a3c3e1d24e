package embedded

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// damage handles data on the disk that does not have its checksum. A read that needs
// it fails, and so does a transaction that would have to know what was there; all
// others are served. A compaction that needs it can never be done, and without it
// writes would come to a halt some time later, so that it stops the store.
type damage struct {
	store *Store
	log   pebble.Logger
	// pipeline is nil until the store is open.
	pipeline atomic.Pointer[pipeline]

	mu   sync.Mutex // guards said
	said map[string]bool
}

// listener makes the database tell of damage, and not end the process.
func (d *damage) listener() *pebble.EventListener {
	return &pebble.EventListener{
		DataCorruption:  func(info pebble.DataCorruptionInfo) { d.found(info) },
		BackgroundError: d.background,
	}
}

// found says once for each file what is damaged.
func (d *damage) found(info pebble.DataCorruptionInfo) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.said[info.Path] {
		return
	}
	d.said[info.Path] = true
	d.store.damagedFiles.Add(1)
	d.store.opts.Logger.Error("data on the disk is damaged: what needs it fails, everything else is served; stop the server and run keelson check, then restore a snapshot",
		"file", info.Path, "error", info.Details)
}

// background is told what the database could not do by itself. It tries again,
// except that damage stays what it is.
func (d *damage) background(err error) {
	if p := d.pipeline.Load(); p != nil && pebble.IsCorruptionError(err) {
		//nolint:errcheck // it is told
		p.fail(
			fmt.Errorf("data on the disk is damaged and cannot be compacted (run keelson check, then restore a snapshot): %w", err),
		)
		return
	}
	d.log.Errorf("background error: %v", err)
}
