package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/keelson-dev/keelson/config"
)

const (
	kubeconfigName = "kubeconfig"
	pkiName        = "pki"
	lockName       = "lock"
	storeName      = "store"

	privateFile = 0o600
	privateDir  = 0o700
)

// dataDir is what the server has locked against other processes: the data directory, and that of scheduled snapshots. Either
// may be nil.
type dataDir struct{ lock, snapshots *dirLock }

// openDataDir creates the directory if it is missing and locks it. For "" it returns a nil dataDir.
func openDataDir(dir string, log *slog.Logger) (*dataDir, error) {
	if dir == "" {
		return nil, nil
	}
	lock, err := lockDataDir(dir)
	if err != nil {
		return nil, err
	}
	d := &dataDir{lock: lock}
	return d, errors.Join(tightenDataDir(dir, log), os.RemoveAll(RepairedCopyDir(dir))) // of a command that was killed
}

// close releases the locks. dataDir may be nil.
func (d *dataDir) close() error {
	if d == nil {
		return nil
	}
	var errs []error
	for _, lock := range []*dirLock{d.snapshots, d.lock} {
		if lock != nil {
			errs = append(errs, lock.release())
		}
	}
	return errors.Join(errs...)
}

// othersMayWrite are the permission bits that allow the group and others to write.
const othersMayWrite = 0o022

// checkDataDir returns an error if another user may have put files into the data directory that the server would
// trust: pki and lock must not be symbolic links or belong to another user. The data directory itself may be a link
// to another disk.
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
		case ownedByOther(info):
			return fmt.Errorf("%s belongs to another user; give it to the user that the server runs as", path)
		}
	}
	return nil
}

// tightenDataDir removes the permission of others to write to pki, and gives a key that others may use the mode with which the server
// writes keys, 0600. A key that only its group may use stays so: with fsGroup in a pod, kubelet gives the group of the volume
// these rights each time that it mounts it, and a server of another UID may need them. It only logs a warning if others may write
// to the data directory, because some volumes of pods require that.
func tightenDataDir(dir string, log *slog.Logger) error {
	if !knowsModes {
		return nil
	}
	pki := filepath.Join(dir, pkiName)
	if info, err := os.Stat(pki); err == nil && info.Mode().Perm()&othersMayWrite != 0 {
		if err := os.Chmod(pki, info.Mode().Perm()&^othersMayWrite); err != nil {
			return fmt.Errorf("others may write to %s, and that cannot be changed: %w", pki, cause(err))
		}
		log.Warn("others could write to the directory of the server's keys; its mode has been changed", "directory", pki)
	}
	if err := tightenKeys(pki, log); err != nil {
		return err
	}
	warnOfWriters(dir, log)
	return nil
}

// tightenKeys gives the keys in pki that others may use the mode 0600. It does not follow links: those who could write to pki may have
// put them there, to change the mode of other files.
func tightenKeys(pki string, log *slog.Logger) error {
	root, err := os.OpenRoot(pki)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot use %s: %w", pki, cause(err))
	}
	defer root.Close()
	const others = 0o007
	keys, _ := fs.Glob(root.FS(), "*.key") // the pattern is valid
	for _, key := range keys {
		info, err := root.Lstat(key)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&others == 0 {
			continue // a file that cannot be read is reported by who needs it
		}
		if err := root.Chmod(key, privateFile); err != nil {
			return fmt.Errorf("others may use the key %s, and that cannot be changed: %w", filepath.Join(pki, key), cause(err))
		}
		log.Warn("others could use a key of the server; its mode is 0600 now, and they may have copied it",
			"file", filepath.Join(pki, key), "mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
	return nil
}

// warnOfWriters logs a warning if others may write to a directory of keys and data.
func warnOfWriters(dir string, log *slog.Logger) {
	info, err := os.Stat(dir)
	if err != nil || !knowsModes {
		return // who uses the directory reports it
	}
	if info.Mode().Perm()&othersMayWrite != 0 && info.Mode()&os.ModeSticky == 0 || ownedByOther(info) {
		log.Warn("others may write to the directory and so replace keys and data; change its mode to 0700",
			"directory", dir, "mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
}

// lockDataDir creates the directory if it is missing and locks it.
func lockDataDir(dir string) (*dirLock, error) {
	if err := makeDir(dir); err != nil {
		return nil, config.Errorf("cannot use the data directory %s ({Storage.DataDir}): %w", dir, cause(err))
	}
	if err := checkDataDir(dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("the data directory %s is %w", dir, ErrDataDirUsed)
	}
	if err != nil {
		return nil, config.Errorf("cannot write to the data directory %s ({Storage.DataDir}): %w", dir, cause(err))
	}
	return lock, nil
}

// makeDir creates a directory and its missing parents, and syncs their entries: without that, files synced in the
// directory could be lost with it.
func makeDir(dir string) error {
	var parents []string
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			break
		}
		parents = append(parents, filepath.Dir(at))
	}
	if err := os.MkdirAll(dir, privateDir); err != nil {
		return err
	}
	for _, parent := range parents {
		d, err := os.Open(parent)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
	}
	return nil
}

// cause returns the underlying error without the path that os errors repeat.
func cause(err error) error {
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}
