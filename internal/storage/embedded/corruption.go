package embedded

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// corruptionHandler handles files whose data does not match their checksums. Reads that need the damaged data fail, and
// so do transactions whose conditions or operations need it. All others are served. A merge that needs damaged data can
// never succeed, and without merges all writes would block some time later. Therefore it stops the store.
type corruptionHandler struct {
	store  *Store
	logger pebble.Logger
	// pipeline is nil until the store is open.
	pipeline atomic.Pointer[pipeline]

	mu     sync.Mutex // guards logged
	logged map[string]bool
}

// listener returns an event listener that calls the methods below. It replaces the default listener, which ends the
// process.
func (h *corruptionHandler) listener() *pebble.EventListener {
	return &pebble.EventListener{
		DataCorruption:  func(info pebble.DataCorruptionInfo) { h.dataCorruption(info) },
		BackgroundError: h.backgroundError,
	}
}

// dataCorruption logs and counts a damaged file, once for each file.
func (h *corruptionHandler) dataCorruption(info pebble.DataCorruptionInfo) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.logged[info.Path] {
		return
	}
	h.logged[info.Path] = true
	h.store.files.damaged.Add(1)
	h.store.opts.Logger.Error("data on the disk is damaged: reads of it fail, all others are served; "+
		"stop the server and run keelson check, then restore a snapshot",
		"file", info.Path, "error", info.Details)
}

// backgroundError handles an error of a flush or a merge. The database repeats the operation. Damaged data stays
// damaged, so that this error stops the store.
func (h *corruptionHandler) backgroundError(err error) {
	if p := h.pipeline.Load(); p != nil && pebble.IsCorruptionError(err) {
		//nolint:errcheck // fail calls Options.OnFailure
		p.fail(
			fmt.Errorf(
				"data on the disk is damaged and cannot be compacted (run keelson check, then restore a snapshot): %w", err,
			),
		)
		return
	}
	h.logger.Errorf("background error: %v", err)
}
