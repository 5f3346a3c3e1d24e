package embedded

// Exclusive implements storage.Exclusive: the engine locks its directory.
func (s *Store) Exclusive() bool { return true }

// DamagedFiles implements storage.DamageCounter.
func (s *Store) DamagedFiles() int64 { return s.damagedFiles.Load() }
