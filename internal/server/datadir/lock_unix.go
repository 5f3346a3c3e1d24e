//go:build unix

package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// ErrLocked is returned if another process has locked the directory.
var ErrLocked = errors.New("locked")

// Lock is the lock of a directory, which only one process can hold. The system releases it when the process ends
// for any reason.
type Lock struct{ file *os.File }

// LockDir locks an existing directory with a file in it. It returns ErrLocked if another process has it, and does not wait.
func LockDir(dir string) (*Lock, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, PrivateFile)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, errors.Join(err, f.Close())
	}
	return &Lock{f}, nil
}

// knowsModes is true, because the mode of a file defines who may use it.
const knowsModes = true

// ownedByOther reports whether a file belongs to a user other than this one and root.
func ownedByOther(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid()
}

// Close releases the lock. l may be nil.
func (l *Lock) Close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}
