//go:build !unix

package server

import (
	"errors"
	"os"
)

var errLocked = errors.New("locked")

// dirLock is left to the store's own lock where there is no flock.
type dirLock struct{}

func lockDir(string) (*dirLock, error) { return &dirLock{}, nil }

func (*dirLock) release() error { return nil }

// foreign says whether a file is of another user, which is not known here.
func foreign(os.FileInfo) bool { return false }
