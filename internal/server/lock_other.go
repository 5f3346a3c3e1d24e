//go:build !unix

package server

import (
	"errors"
	"os"
)

var errLocked = errors.New("locked")

// dirLock does nothing on systems without flock; the store has a lock of its own.
type dirLock struct{}

func lockDir(string) (*dirLock, error) { return &dirLock{}, nil }

func (*dirLock) release() error { return nil }

// knowsModes says that the mode of a file does not tell who may use it: all files seem to be open to everybody on Windows.
const knowsModes = false

// ownedByOther returns false: the owner of a file is not known on this system.
func ownedByOther(os.FileInfo) bool { return false }
