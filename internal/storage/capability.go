package storage

// Exclusive is an optional interface of a Store that knows whether it is the only writer of its data. A Store
// without this method is assumed to have other writers.
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

// SpaceReporter is an optional interface of a Store that keeps free space on its disk, and refuses writes with ErrNoSpace when
// there is too little.
type SpaceReporter interface {
	// Space returns the present figures. It is cheap. The free space may be a second old.
	Space() Space
}

// Space describes the free space of a store, and whether the store refuses writes.
type Space struct {
	// Available are the free bytes that the store may use, -1 if that is not known. Below Reserve the store refuses all writes
	// except deletions; below a quarter of Reserve it refuses deletions too.
	Available, Reserve int64
	// Low reports whether writes are refused: there is less than Reserve, or too little for the work in the background.
	Low bool
	// Refused counts the writes that were refused since the store was opened.
	Refused int64
}
