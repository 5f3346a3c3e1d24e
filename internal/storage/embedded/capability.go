package embedded

// Exclusive implements storage.Exclusive. It returns true, because the store locks its directory.
func (s *Store) Exclusive() bool { return true }

// DamagedFiles implements storage.DamageCounter.
func (s *Store) DamagedFiles() int64 { return s.files.damaged.Load() }
