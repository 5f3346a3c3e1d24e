package embedded

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// holder keeps changes that a copy does not have yet for longer than Options.HistoryWindow.
type holder struct {
	at      atomic.Pointer[held] // nil if nothing is held
	refused bool                 // what is held needs too much space; only the maintenance goroutine uses it
}

// held says that all changes after a revision are kept.
type held struct {
	revision int64
	written  int64 // storage.Stats.WrittenBytes at that revision; negative if an earlier process wrote it
}

// Hold keeps all changes after a revision for longer than Options.HistoryWindow, until it is called with a later one. written is
// storage.Stats.WrittenBytes at that revision. What is held is bounded by Retention.Bytes, and is given up when little disk space is left.
// Hold has an effect only if Options.Hold is set. Then a later process holds the changes too, until it calls Hold.
func (s *Store) Hold(revision, written int64) {
	if s.opts.Hold {
		s.compactor.holder.at.Store(&held{revision, written})
	}
}

// unheld returns the revision up to which history may be compacted, if it has left the window up to a revision.
func (c *compactor) unheld(revision int64) int64 {
	h := &c.holder
	at := h.at.Load()
	if at == nil || at.revision >= revision {
		h.refused = false
		return revision
	}
	bytes := c.hub.written.Load() - at.written
	if most := c.rawLimit(bytes); (most <= 0 || bytes <= most) && !c.db.space.nearlyLow(c.db.opts) {
		return at.revision
	}
	if !h.refused {
		h.refused = true
		c.db.opts.Logger.Warn("changes that the copy of the store does not have are given up, because they need too much space",
			"after", at.revision, "bytes", bytes)
	}
	return revision
}

// load reads what the process before has held.
func (h *holder) load(d *database) error {
	if !d.opts.Hold {
		return nil
	}
	return d.meta(metaHeld, func(b []byte) error {
		revision, bytes, err := decodeHeld(b)
		if err == nil {
			h.at.Store(&held{revision, -bytes})
		}
		return err
	})
}

// save adds what is held to a batch.
func (h *holder) save(b *pebble.Batch, written int64) {
	at := h.at.Load()
	if at == nil {
		mustSucceed(b.Delete([]byte(metaHeld), nil))
		return
	}
	value := binary.AppendUvarint(nil, uint64(at.revision))
	mustSucceed(b.Set([]byte(metaHeld), binary.AppendUvarint(value, uint64(max(written-at.written, 0))), nil))
}

// decodeHeld returns the revision after which changes are held, and the size of their keys and values. It fails with errCorrupt.
func decodeHeld(b []byte) (revision, bytes int64, err error) {
	if revision, b, err = cutUvarint(b); err == nil {
		bytes, _, err = cutUvarint(b)
	}
	return revision, bytes, err
}
