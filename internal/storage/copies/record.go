package copies

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/keelson-dev/keelson/internal/storage/bucket"
)

// record is the content of Options.Record.
type record struct {
	// Epoch is the last epoch of the copy that was written from this data directory, or from which it was restored.
	Epoch int64 `json:"epoch"`
	// Directory tells the data directory from others.
	Directory string `json:"directory"`
}

// readRecord returns a record. It is empty if there is no file, or if path is "".
func readRecord(path string) (r record, err error) {
	if path == "" {
		return r, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return r, fmt.Errorf("the record of the copy in the data directory cannot be read: %w", err)
	}
	return r, nil
}

// WrittenEpoch returns the epoch in a record, 0 if there is none.
func WrittenEpoch(path string) (int64, error) {
	r, err := readRecord(path)
	return r.Epoch, err
}

// Newest returns the number of the newest epoch in a bucket, 0 if there is no copy.
func Newest(ctx context.Context, b bucket.Bucket) (int64, error) {
	x, err := ReadIndex(ctx, b)
	if err != nil {
		return 0, err
	}
	return x.newest(), nil
}

// Holder returns what tells a process from others that write to the same copy (Lock.Holder). A process that uses the same record on
// the same machine later gets the same value, so that it does not wait for the lock of the one before it. The caller has locked the
// data directory that has the record; path is "" if there is none.
func Holder(path string) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if path == "" || err != nil {
		return rand.Text(), nil
	}
	r, err := readRecord(path)
	if err == nil && r.Directory == "" {
		r.Directory = rand.Text()
		err = r.write(path)
	}
	if err != nil {
		return "", err
	}
	absolute, err := filepath.Abs(path)
	return fmt.Sprintf("%s %s %s", r.Directory, strings.TrimSpace(string(boot)), absolute), err
}

// writeRecord records the epoch that is begun.
func (s *Shipper) writeRecord(epoch int64) error {
	if s.Record == "" {
		return nil
	}
	return WriteRecord(s.Record, epoch)
}

// WriteRecord records that a data directory goes on from an epoch of a copy. It is called after a restore, so that the server may begin
// a new line of history there.
func WriteRecord(path string, epoch int64) error {
	r, err := readRecord(path)
	if err != nil {
		return err
	}
	r.Epoch = epoch
	return r.write(path)
}

// write replaces a record.
func (r *record) write(path string) (err error) {
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
