package server

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// othersMayWrite are the permissions of a group and of others to change a file.
const othersMayWrite = 0o022

// checkDataDir refuses a data directory in which another user may have put what the
// server would trust: pki and lock have to be what they are called, not symbolic
// links, and must not be of another user. The directory itself may be a link to
// another disk.
func checkDataDir(dir string) error {
	for _, name := range []string{pkiName, lockName} {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return fmt.Errorf("cannot use %s: %w", path, cause(err))
		case info.Mode()&os.ModeSymlink != 0:
			return fmt.Errorf("%s is a symbolic link, which the server does not follow; replace it by what it points to", path)
		case foreign(info):
			return fmt.Errorf("%s belongs to another user; give it to the user that the server runs as", path)
		}
	}
	return nil
}

// tightenDataDir takes from pki the permission of others to write to it, and warns
// about a directory that others may write to: it may be of a kind that has to be so,
// such as a volume of a pod.
func tightenDataDir(dir string, log *slog.Logger) error {
	pki := filepath.Join(dir, pkiName)
	if info, err := os.Stat(pki); err == nil && info.Mode().Perm()&othersMayWrite != 0 {
		if err := os.Chmod(pki, info.Mode().Perm()&^othersMayWrite); err != nil {
			return fmt.Errorf("others may write to %s, and that cannot be changed: %w", pki, cause(err))
		}
		log.Warn("others could write to the directory of the server's keys; its mode has been changed", "directory", pki)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&othersMayWrite != 0 && info.Mode()&os.ModeSticky == 0 || foreign(info) {
		log.Warn("others may write to the data directory and so replace keys and data; change its mode to 0700",
			"directory", dir, "mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
	return nil
}
