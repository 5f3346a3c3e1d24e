package copies

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Record is a file in a data directory about the copy of its store.
type Record struct {
	// Directory tells the data directory from others.
	Directory string `json:"directory"`
	// MinRevision is a revision that the store must have at least, because clients may have seen lower ones with other content.
	MinRevision int64 `json:"minRevision,omitempty"`
	// To is the place of the copy (--backup-to). The fields below are about that place.
	To string `json:"to,omitempty"`
	// Place is the place of the lock (Lock.Expect), "" before it is known.
	Place string `json:"place,omitempty"`
	// Epoch is the last epoch that was written from this directory, or the newest one when it was restored.
	Epoch int64 `json:"epoch,omitempty"`
	// Restored means that the store was restored from the copy, so that it may begin a new line of history there, unless another server
	// has written since.
	Restored bool `json:"restored,omitempty"`
}

// ReadRecord reads a record, of which only the fields count that are about a place. It is empty if there is no file, or if path is "".
func ReadRecord(path, to string) (r Record, err error) {
	if path == "" {
		return r, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		b, err = []byte("{}"), nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return r, fmt.Errorf("the record of the copy in the data directory cannot be read: %w", err)
	}
	if to = samePlace(to); r.To != to {
		r = Record{Directory: r.Directory, MinRevision: r.MinRevision, To: to}
	}
	return r, nil
}

// samePlace returns one name for all names of a directory.
func samePlace(to string) string {
	if strings.Contains(to, "://") {
		return strings.TrimRight(to, "/")
	}
	if absolute, err := filepath.Abs(to); err == nil {
		return absolute
	}
	return to
}

// UpdateRecord changes a record. It does nothing if path is "".
func UpdateRecord(path, to string, change func(*Record)) error {
	r, err := ReadRecord(path, to)
	if err != nil || path == "" {
		return err
	}
	change(&r)
	return r.write(path)
}

// write replaces a record.
func (r *Record) write(path string) (err error) {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".copy-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the first error is returned
		}
	}()
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Holder returns what tells a process from others that write to the same copy (Lock.Holder). A process that uses the same record on
// the same machine later gets the same value, so that it does not wait for the lock of the one before it. The caller has locked the
// data directory that has the record; path is "" if there is none.
func Holder(path, to string) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if path == "" || err != nil {
		return rand.Text(), nil
	}
	r, err := ReadRecord(path, to)
	if err == nil && r.Directory == "" {
		r.Directory = rand.Text()
		err = r.write(path)
	}
	if err != nil {
		return "", err
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	id, err := fileID(dir)
	return fmt.Sprintf("%s %s %s %s", r.Directory, strings.TrimSpace(string(boot)), dir, id), err
}
