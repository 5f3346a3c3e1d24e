//go:build unix

package server

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// errLocked is returned if another process has locked the directory.
var errLocked = errors.New("locked")

// dirLock locks a directory for one process. The system releases the lock when the process ends for any reason.
type dirLock struct{ file *os.File }

func lockDir(dir string) (*dirLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, privateFile)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, errors.Join(err, f.Close())
	}
	return &dirLock{f}, nil
}

// knowsModes says that the mode of a file tells who may use it.
const knowsModes = true

// ownedByOther reports whether a file belongs to a user other than this one and root.
func ownedByOther(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid()
}

func (l *dirLock) release() error { return l.file.Close() }
