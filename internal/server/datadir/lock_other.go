//go:build !unix

package datadir

import (
	"errors"
	"os"
)

// ErrLocked is never returned on these systems.
var ErrLocked = errors.New("locked")

// Lock does nothing on systems without flock; the store has a lock of its own.
type Lock struct{}

// LockDir returns a lock that does nothing.
func LockDir(string) (*Lock, error) { return &Lock{}, nil }

// Close does nothing.
func (*Lock) Close() error { return nil }

// knowsModes is false, because all files seem to be open to everybody on Windows: their modes have no meaning.
const knowsModes = false

// ownedByOther returns false: the owner of a file is not known on this system.
func ownedByOther(os.FileInfo) bool { return false }
