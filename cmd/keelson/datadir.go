package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// stoppedStore is the store of a data directory that no server uses. It holds the lock of the directory.
type stoppedStore struct {
	*embedded.Reader
	lock *datadir.Lock
}

// openStopped opens the store of a data directory without changing it. It returns datadir.ErrUsed while a
// server uses the directory.
func openStopped(dataDir string) (*stoppedStore, error) {
	switch _, err := os.ReadDir(datadir.StoreDir(dataDir)); {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("cannot read the data directory %s: %w; run the command as the user of the server",
			dataDir, withoutPath(err))
	case err != nil:
		return nil, fmt.Errorf("there is no store in the data directory %s", dataDir)
	}
	lock, err := lockStore(dataDir)
	if err != nil {
		return nil, err
	}
	r, err := embedded.OpenReader(embedded.Options{Dir: datadir.StoreDir(dataDir)})
	if errors.Is(err, embedded.ErrDamaged) {
		return nil, errors.Join(err, lock.Close())
	}
	if err != nil {
		return nil, errors.Join(oneLine(err), lock.Close())
	}
	return &stoppedStore{r, lock}, nil
}

// lockStore locks a data directory with a store against other processes until the lock is closed, and removes what a command that was
// killed has left there.
func lockStore(dataDir string) (lock *datadir.Lock, err error) {
	if _, err := os.Stat(datadir.StoreDir(dataDir)); err != nil {
		return nil, fmt.Errorf("there is no store in the data directory %s", dataDir)
	}
	if lock, err = datadir.LockDataDir(dataDir); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(datadir.RepairedCopy(dataDir)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

func (s *stoppedStore) Close() error { return errors.Join(s.Reader.Close(), s.lock.Close()) }

// oneLine returns the message of an error as one line.
func oneLine(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}

const restoringName = datadir.RestoringName

// createStore creates a data directory and its store, whose content fill writes. The directory may exist but must
// be empty. After a failure there is no store.
func createStore(dataDir string, fill func(embedded.Options) error) (err error) {
	lock, err := datadir.LockDataDir(dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := checkEmpty(dataDir); err != nil {
		return err
	}
	making := filepath.Join(dataDir, restoringName)
	if err := os.RemoveAll(making); err != nil { // the files of an interrupted attempt
		return err
	}
	if err := fill(embedded.Options{Dir: making}); err != nil {
		return errors.Join(err, os.RemoveAll(making))
	}
	if err := os.Rename(making, datadir.StoreDir(dataDir)); err != nil {
		return err
	}
	return syncDir(dataDir)
}

// checkEmpty returns an error if a data directory has other files than the lock and the files of an interrupted
// restore.
func checkEmpty(dataDir string) error {
	entries, err := os.ReadDir(dataDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != "lock" && name != restoringName {
			return fmt.Errorf("the data directory %s is not empty: it has %s", dataDir, name)
		}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// replaceFile replaces a file atomically: it creates an empty temporary file in the same directory, passes its name to
// write, and renames it. After a failure the file at path is unchanged.
func replaceFile(path string, write func(temporary string) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, withoutPath(err))
	}
	temporary := f.Name()
	defer func() {
		if err != nil {
			_ = os.Remove(temporary) // the first error is returned
		}
	}()
	if err := f.Close(); err != nil {
		return err
	}
	if err := write(temporary); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, withoutPath(err))
	}
	return syncDir(dir)
}

// checkAbsent returns an error if a file exists, unless it may be replaced.
func checkAbsent(path string, replace bool) error {
	if _, err := os.Lstat(path); err == nil && !replace {
		return fmt.Errorf("%s exists; --force replaces it", path)
	}
	return nil
}

// withoutPath returns the underlying error without the path that errors of files repeat.
func withoutPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return l.Err
	}
	return err
}
