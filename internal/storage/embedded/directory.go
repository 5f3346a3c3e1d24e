package embedded

import (
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// makeDir creates dir and its missing parents, and syncs the directories that contain new entries. Without that a power
// cut could remove a new directory together with the synced database in it.
func makeDir(fs vfs.FS, dir string) error {
	var parents []string // parents of the missing directories, the innermost first
	for at := dir; ; at = fs.PathDir(at) {
		if _, err := fs.Stat(at); err == nil || fs.PathDir(at) == at {
			break
		}
		parents = append(parents, fs.PathDir(at))
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, parent := range parents {
		d, err := fs.OpenDir(parent)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
	}
	return nil
}

// lockFileName is the name of the file that the database locks. The database creates this file, and empties it if
// it exists.
const lockFileName = "LOCK"

// lockDir locks the directory of the store against other processes. It fails with ErrLocked while one uses it.
func lockDir(o *Options) (*pebble.Lock, error) {
	if err := checkFiles(o.FS, o.Dir); err != nil {
		return nil, fmt.Errorf("cannot open data directory %s: %w", o.Dir, err)
	}
	lock, err := pebble.LockDirectory(o.Dir, o.FS)
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		return nil, fmt.Errorf("cannot write to data directory %s: %w", o.Dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory %s is used by another process: %w", o.Dir, ErrLocked)
	}
	return lock, nil
}

// checkFiles fails if dir has an entry that is neither a file nor a directory, or a link to such an entry.
// Examples are a named pipe and a device, from which a read might never end. It also fails if the lock file is not
// empty: it may then be a link to another file, which locking would empty. Somebody who can write to dir could
// have created such entries.
func checkFiles(fs vfs.FS, dir string) error {
	if info, err := fs.Stat(dir); err != nil {
		return err
	} else if !info.IsDir() {
		return errors.New("it is not a directory")
	}
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		info, err := fs.Stat(fs.PathJoin(dir, name))
		switch {
		case err != nil: // the code that needs the file reports the error
		case !info.IsDir() && !info.Mode().IsRegular():
			return fmt.Errorf("%s is not a regular file", name)
		case name == lockFileName && info.Size() > 0:
			return fmt.Errorf("%s is not empty, so it is not the lock of a store, or a link to something else; remove it", name)
		}
	}
	return nil
}
