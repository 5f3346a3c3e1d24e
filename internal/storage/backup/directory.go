package backup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Directory is a directory of snapshots that one server writes. Other files in it are left alone.
type Directory struct {
	Path string
	// Keep is the number of snapshots that remain after Prune, at least 1.
	Keep int
	// Recipients are the recipients for whom snapshots are encrypted. Without recipients, snapshots are not
	// encrypted.
	Recipients []age.Recipient
	// Reserve is the number of bytes that must remain free on the disk.
	Reserve int64
	// Free returns the free space in bytes; nil means the free space of the file system of Path.
	Free func() (uint64, error)
}

const (
	// namePattern is the name of a snapshot as a time format. An encrypted snapshot has encryptedSuffix after this
	// name.
	namePattern     = "keelson-20060102T150405Z.snapshot"
	encryptedSuffix = ".age"
	// unfinishedName is the name of the snapshot that is being written. A process that was killed may have left
	// such a file.
	unfinishedName = "unfinished"
)

// ErrNoSpace is the error of Save if the snapshot would leave less than Directory.Reserve free.
var ErrNoSpace = errors.New("there is too little space for a snapshot")

// Save writes a snapshot and returns its name and its size in bytes. created is the time of its state. A file gets
// the name of a snapshot only when it is complete and was read again without a difference.
func (d *Directory) Save(created time.Time, write func(io.Writer) error) (name string, size int64, err error) {
	unfinished := filepath.Join(d.Path, unfinishedName)
	defer func() {
		if err != nil {
			_ = os.Remove(unfinished) // the first error is returned
		}
	}()
	if size, err = d.write(unfinished, write); err != nil {
		return "", 0, err
	}
	name = created.UTC().Format(namePattern)
	if len(d.Recipients) > 0 {
		name += encryptedSuffix
	}
	if err := os.Rename(unfinished, filepath.Join(d.Path, name)); err != nil {
		return "", 0, err
	}
	return name, size, d.sync()
}

// Newest returns the time of the newest snapshot, and the zero time if there is none.
func (d *Directory) Newest() (time.Time, error) {
	names, err := d.names()
	if err != nil || len(names) == 0 {
		return time.Time{}, err
	}
	created, _ := snapshotTime(names[len(names)-1])
	return created, nil
}

// write writes a file, syncs it, and reads it again to compare the checksums.
func (d *Directory) write(path string, write func(io.Writer) error) (size int64, err error) {
	const privateFile = 0o600
	// An existing file may be a link, a pipe or another user's file. It is removed and never opened.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, privateFile)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	written := sha256.New()
	if err := d.encrypt(io.MultiWriter(&spaceWriter{file: f, free: d.free, reserve: d.Reserve}, written), write); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	read := sha256.New()
	if size, err = io.Copy(read, f); err != nil {
		return 0, err
	}
	if !bytes.Equal(read.Sum(nil), written.Sum(nil)) {
		return 0, errors.New("the file does not have the content that was written")
	}
	return size, nil
}

// encrypt calls write with a writer that encrypts to w, if there are recipients.
func (d *Directory) encrypt(w io.Writer, write func(io.Writer) error) error {
	if len(d.Recipients) == 0 {
		return write(w)
	}
	encrypted, err := age.Encrypt(w, d.Recipients...)
	if err != nil {
		return err
	}
	if err := write(encrypted); err != nil {
		return err
	}
	return encrypted.Close()
}

// Prune removes the oldest snapshots, so that Keep remain. It never removes written, the snapshot that Save has
// just returned: if the clock was set back, this is not the one with the latest time. Prune must only be called
// after a successful Save.
func (d *Directory) Prune(written string) error {
	names, err := d.names()
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(names, func(name string) bool { return name == written })
	var errs []error
	for _, name := range others[:max(0, len(others)-(d.Keep-1))] {
		errs = append(errs, os.Remove(filepath.Join(d.Path, name)))
	}
	return errors.Join(errs...)
}

// names returns the names of the snapshots, the oldest first. Files that are empty or not regular do not count.
func (d *Directory) names() (names []string, err error) {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if _, ok := snapshotTime(e.Name()); !ok || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && info.Size() > 0 {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names) // the names contain the times, so this is also the order of the times
	return names, nil
}

// snapshotTime returns the time in the name of a snapshot. ok is false for other names.
func snapshotTime(name string) (created time.Time, ok bool) {
	created, err := time.Parse(namePattern, strings.TrimSuffix(name, encryptedSuffix))
	return created, err == nil
}

func (d *Directory) sync() error {
	f, err := os.Open(d.Path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d *Directory) free() (uint64, error) {
	if d.Free != nil {
		return d.Free()
	}
	usage, err := vfs.Default.GetDiskUsage(d.Path)
	return usage.AvailBytes, err
}

// spaceWriter writes to a file while more than a reserve is free on its disk.
type spaceWriter struct {
	file      io.Writer
	free      func() (uint64, error)
	reserve   int64
	unchecked int64 // how many bytes may be written before free is called again
}

// spaceStep is the number of bytes that are written between two checks of the free space.
const spaceStep = 4 << 20

func (w *spaceWriter) Write(b []byte) (int, error) {
	if w.unchecked < int64(len(b)) {
		need := w.reserve + max(spaceStep, int64(len(b)))
		free, err := w.free()
		if err != nil {
			return 0, fmt.Errorf("the free space is unknown: %w", err)
		}
		if free < uint64(need) {
			return 0, fmt.Errorf("%w: %d bytes are free, and %d are needed", ErrNoSpace, free, need)
		}
		w.unchecked = need - w.reserve
	}
	w.unchecked -= int64(len(b))
	return w.file.Write(b)
}
