// Package datadir has the files of a data directory: their names, the lock against other processes, and who may use them.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
)

// PKI is the name of the directory of certificates and keys.
const PKI = "pki"

const (
	lockName = "lock"

	// PrivateFile is the mode of files with keys.
	PrivateFile = 0o600
	// PrivateDir is the mode of directories with keys or data.
	PrivateDir = 0o700
)

// ErrUsed is returned if another process uses the data directory.
var ErrUsed = config.Errorf("used by another process; stop that, or name another directory with {Storage.DataDir}")

// StoreDir returns the directory of the embedded engine in a data directory.
func StoreDir(dataDir string) string { return filepath.Join(dataDir, "store") }

// RestoringName is the name of the directory in which a restore builds the store before it is renamed.
const RestoringName = "store.restoring"

// RepairedCopy returns the directory, in a data directory, of a copy of the store that `keelson check` and `keelson snapshot save
// --skip-damaged` repair to see what can be read. Undamaged tables in it are links. A process that holds the lock of the data
// directory may remove it.
func RepairedCopy(dataDir string) string { return filepath.Join(dataDir, "store.copy") }

// Following returns the directory in which a standby makes the store while it follows a copy, Replaced the one that has the store that it
// has replaced when it took over, and Promotion the file that orders it to take over.
func Following(dataDir string) string { return filepath.Join(dataDir, "store.following") }

// Replaced: see Following.
func Replaced(dataDir string) string { return filepath.Join(dataDir, "store.replaced") }

// Promotion: see Following.
func Promotion(dataDir string) string { return filepath.Join(dataDir, "promote") }

// Mirror returns the directory of the store with the data of an etcd cluster and its past (Storage.LocalState).
func Mirror(dataDir string) string { return filepath.Join(dataDir, "store.mirror") }

// Member returns the directory of the member of a cluster of servers (Storage.Members).
func Member(dataDir string) string { return filepath.Join(dataDir, "cluster") }

// CopyRecord returns the file that says which epoch of the copy of --backup-to this directory has written last.
func CopyRecord(dataDir string) string { return filepath.Join(dataDir, "copy.json") }

// Certificates returns the directory in which the server keeps its own certificates.
func Certificates(dataDir string) string { return filepath.Join(dataDir, PKI) }

// Kubeconfig returns the path of the administrator's kubeconfig in a data directory.
func Kubeconfig(dataDir string) string { return filepath.Join(dataDir, "kubeconfig") }

// Open creates the data directory if it is missing, locks it, and removes permissions that other users should not
// have (see tighten). It also removes files that a killed command left behind. The error wraps ErrUsed if another
// process has locked the directory.
func Open(dir string, log *slog.Logger) (*Lock, error) {
	lock, err := LockDataDir(dir)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(tighten(dir, log), os.RemoveAll(RepairedCopy(dir))); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// NotRestoring returns an error if a restore into the data directory was interrupted, because a server would start with an empty
// store.
func NotRestoring(dir string) error {
	if _, err := os.Stat(StoreDir(dir)); err == nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, RestoringName)); err != nil {
		return nil
	}
	return fmt.Errorf("a restore into the data directory %s was interrupted: run it again, or remove %s to begin "+
		"with nothing", dir, RestoringName)
}

// othersMayWrite are the permission bits that allow the group and others to write.
const othersMayWrite = 0o022

// check returns an error if another user may have put files into the data directory that the server would
// trust: pki and lock must not be symbolic links or belong to another user. The data directory itself may be a link
// to another disk.
func check(dir string) error {
	for _, name := range []string{PKI, lockName} {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return fmt.Errorf("cannot use %s: %w", path, Cause(err))
		case info.Mode()&os.ModeSymlink != 0:
			return fmt.Errorf("%s is a symbolic link, which the server does not follow; replace it by what it points to", path)
		case ownedByOther(info):
			return fmt.Errorf("%s belongs to another user; give it to the user that the server runs as", path)
		}
	}
	return nil
}

// tighten removes the permission of others to write to pki. If others may use a key, it gives the key the mode
// 0600, with which the server writes keys. It does not change a key that only its group may use: with fsGroup in a
// pod, kubelet gives the group these permissions each time that it mounts the volume, and a server of another UID
// may need them. If others may write to the data directory, it only logs a warning, because some volumes of pods
// require that.
func tighten(dir string, log *slog.Logger) error {
	if !knowsModes {
		return nil
	}
	pki := Certificates(dir)
	if info, err := os.Stat(pki); err == nil && info.Mode().Perm()&othersMayWrite != 0 {
		if err := os.Chmod(pki, info.Mode().Perm()&^othersMayWrite); err != nil {
			return fmt.Errorf("others may write to %s, and that cannot be changed: %w", pki, Cause(err))
		}
		log.Warn("others could write to the directory of the server's keys; its mode has been changed", "directory", pki)
	}
	if err := tightenKeys(pki, log); err != nil {
		return err
	}
	WarnOfWriters(dir, log)
	return nil
}

// tightenKeys gives keys in pki the mode 0600 if others may use them. It does not follow links: a user who could
// write to pki may have put a link there, so that the server changes the mode of another file.
func tightenKeys(pki string, log *slog.Logger) error {
	root, err := os.OpenRoot(pki)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot use %s: %w", pki, Cause(err))
	}
	defer root.Close()
	const others = 0o007
	keys, _ := fs.Glob(root.FS(), "*.key") // the pattern is valid
	for _, key := range keys {
		info, err := root.Lstat(key)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&others == 0 {
			continue // code that needs an unreadable file reports it
		}
		if err := root.Chmod(key, PrivateFile); err != nil {
			return fmt.Errorf("others may use the key %s, and that cannot be changed: %w", filepath.Join(pki, key), Cause(err))
		}
		log.Warn("others could use a key of the server; its mode is 0600 now, and they may have copied it",
			"file", filepath.Join(pki, key), "mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
	return nil
}

// WarnOfWriters logs a warning if others may write to a directory of keys and data.
func WarnOfWriters(dir string, log *slog.Logger) {
	info, err := os.Stat(dir)
	if err != nil || !knowsModes {
		return // code that uses the directory reports the error
	}
	if info.Mode().Perm()&othersMayWrite != 0 && info.Mode()&os.ModeSticky == 0 || ownedByOther(info) {
		log.Warn("others may write to the directory and so replace keys and data; change its mode to 0700",
			"directory", dir, "mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
}

// LockDataDir creates the data directory if it is missing and locks it against other processes until the lock is closed. The error
// wraps ErrUsed if another process has it.
func LockDataDir(dir string) (*Lock, error) {
	if err := Make(dir); err != nil {
		return nil, config.Errorf("cannot use the data directory %s ({Storage.DataDir}): %w", dir, Cause(err))
	}
	if err := check(dir); err != nil {
		return nil, err
	}
	lock, err := LockDir(dir)
	if errors.Is(err, ErrLocked) {
		return nil, fmt.Errorf("the data directory %s is %w", dir, ErrUsed)
	}
	if err != nil {
		return nil, config.Errorf("cannot write to the data directory %s ({Storage.DataDir}): %w", dir, Cause(err))
	}
	return lock, nil
}

// Make creates a directory and its missing parents, and syncs their entries: without that, files synced in the
// directory could be lost with it.
func Make(dir string) error {
	var parents []string
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			break
		}
		parents = append(parents, filepath.Dir(at))
	}
	if err := os.MkdirAll(dir, PrivateDir); err != nil {
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

// Cause returns the underlying error without the path that os errors repeat.
func Cause(err error) error {
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// CopyFiles copies the files of a directory to a new one. They keep their modes.
func CopyFiles(from, to string) error {
	if err := os.MkdirAll(to, PrivateDir); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	for _, e := range entries {
		if err == nil {
			err = copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		}
	}
	return err
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	content, err := filewatch.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, info.Mode().Perm())
}
