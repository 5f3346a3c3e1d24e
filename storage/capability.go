package storage

// Exclusive is implemented by a Store that can say whether it is the only one that
// writes to its data. A Store without this method is taken for one of several.
type Exclusive interface {
	// Exclusive returns whether no other process can change the data while the store is
	// open. The answer never changes.
	Exclusive() bool
}

// IsExclusive returns whether no other process can change the data of s while it is open.
func IsExclusive(s Store) bool {
	e, ok := s.(Exclusive)
	return ok && e.Exclusive()
}

// DamageCounter is implemented by a Store that keeps files of its own and checks them.
type DamageCounter interface {
	// DamagedFiles returns the number of files in which damage was found since the store
	// was opened. It is cheap and may lag behind.
	DamagedFiles() int64
}
