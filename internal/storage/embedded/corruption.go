package embedded

import (
	"errors"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

// corruptionHandler handles files whose data does not match their checksums. Reads that need the damaged data
// fail, and so do transactions whose conditions or operations need it. All others are served. A merge that needs
// damaged data can never succeed: it is tried again from time to time, and the tables that it would merge stay as
// they are. Repair removes the damage from a store.
type corruptionHandler struct {
	store  *Store
	logger pebble.Logger

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
	h.store.opts.Logger.Error("data on the disk is damaged: requests that need it fail, all others are served; "+
		"stop the server, then `keelson check` says what is lost, and `keelson repair` makes all else usable again",
		"file", info.Path, "error", damageIn(info.Details))
}

// backgroundError handles an error of a flush or a merge. The database repeats the operation.
func (h *corruptionHandler) backgroundError(err error) {
	if pebble.IsCorruptionError(err) && h.store.merges != nil {
		h.store.merges.failedByDamage()
		return // dataCorruption has logged it
	}
	h.logger.Errorf("background error: %v", err)
}

// damageIn returns a description of damage, in one line, from an error of the database. The texts of Pebble's
// errors also contain stack traces and placeholders.
func damageIn(err error) string {
	var blk *damagedBlockError
	if errors.As(err, &blk) {
		return blk.Error()
	}
	text := strings.ReplaceAll(err.Error(), "<corruption detail carrier>", "")
	if line, _, found := strings.Cut(strings.TrimSpace(text), "\n"); found {
		text = line
	}
	return strings.TrimSpace(text)
}

// asDamage returns a *storage.DamagedError for an error of damaged data, and err for every other one.
func asDamage(err error) error {
	if err == nil || !pebble.IsCorruptionError(err) {
		return err
	}
	return &storage.DamagedError{Detail: damageIn(err)}
}
