package embedded

import "github.com/keelson-dev/keelson/internal/storage"

// Exclusive implements storage.Exclusive. It returns true, because the store locks its directory.
func (s *Store) Exclusive() bool { return true }

// DamagedFiles implements storage.DamageCounter.
func (s *Store) DamagedFiles() int64 { return s.files.damaged.Load() }

// Space implements storage.SpaceReporter.
func (s *Store) Space() storage.Space {
	return storage.Space{
		Available: s.space.free.Load(), Reserve: max(s.opts.ReserveBytes, 0), Low: s.space.isLow(),
		Refused: s.space.refused.Load(),
	}
}
