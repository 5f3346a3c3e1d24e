package storage

// Exclusive is an optional interface of a Store that knows whether it is the only writer of its data. A Store
// without this method is treated as one of several.
type Exclusive interface {
	// Exclusive reports whether no other process can change the data while the store is
	// open. The answer never changes.
	Exclusive() bool
}

// IsExclusive reports whether no other process can change the data of s while it is open.
func IsExclusive(s Store) bool {
	e, ok := s.(Exclusive)
	return ok && e.Exclusive()
}

// DamageCounter is an optional interface of a Store that checks its own files.
type DamageCounter interface {
	// DamagedFiles returns the number of files in which damage was found since the store
	// was opened. It is cheap and may lag behind.
	DamagedFiles() int64
}
