package log

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// backupTime is the format of the time, in UTC, in the name of a rotated file.
	backupTime = "2006-01-02T15-04-05.000"
	compressed = ".gz"

	directoryMode = 0o700
	fileMode      = 0o600
	megabyte      = 1 << 20
	day           = 24 * time.Hour
)

// FileOptions configure a File and its rotation.
type FileOptions struct {
	Path string
	// MaxSize is the largest size of the file in megabytes before it is rotated; 0 means no limit.
	MaxSize int
	// MaxAge limits the age of rotated files in days, MaxBackups their number; 0 means no limit.
	MaxAge, MaxBackups int
	// Compress makes the server compress rotated files with gzip.
	Compress bool
	// Now is the clock; nil stands for time.Now.
	Now func() time.Time
	// OnError, unless nil, is called with errors of compressing and removing rotated files.
	OnError func(error)
}

// File is a log file with rotation. Only one goroutine at a time may write to it.
type File struct {
	o    FileOptions
	file *os.File
	size int64

	cleanUpMu sync.Mutex     // held while rotated files are compressed and removed
	cleanUps  sync.WaitGroup // counts the goroutines that do that
}

// OpenFile opens the file. If the file or its directory is missing, it is created with access
// only for the owner.
func OpenFile(o FileOptions) (*File, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), directoryMode); err != nil {
		return nil, err
	}
	f := &File{o: o}
	return f, f.open()
}

func (f *File) open() error {
	file, err := os.OpenFile(f.o.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.size = file, info.Size()
	return nil
}

// Write appends b. It rotates the file before if b does not fit.
func (f *File) Write(b []byte) (int, error) {
	if most := int64(f.o.MaxSize) * megabyte; most > 0 {
		if int64(len(b)) > most {
			return 0, fmt.Errorf("write length %d exceeds maximum file size %d", len(b), most)
		}
		if f.size+int64(len(b)) > most {
			if err := f.rotate(); err != nil {
				return 0, err
			}
		}
	}
	if f.file == nil { // the last rotation failed
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	n, err := f.file.Write(b)
	f.size += int64(n)
	return n, err
}

// Close closes the file and waits until rotated files are compressed and removed.
func (f *File) Close() error {
	f.cleanUps.Wait()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// rotate renames the file and opens a new one.
func (f *File) rotate() error {
	if f.file != nil {
		err := f.file.Close()
		f.file = nil
		if err != nil {
			return err
		}
	}
	if err := os.Rename(f.o.Path, f.backupName()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := f.open(); err != nil {
		return err
	}
	f.cleanUps.Add(1)
	go func() {
		defer f.cleanUps.Done()
		if err := f.cleanUp(); err != nil {
			f.o.OnError(err)
		}
	}()
	return nil
}

// nameParts returns the parts of a rotated file's name before and after the time.
func (f *File) nameParts() (prefix, suffix string) {
	name := filepath.Base(f.o.Path)
	suffix = filepath.Ext(name)
	return strings.TrimSuffix(name, suffix) + "-", suffix
}

// backupName returns an unused name for the rotated file.
func (f *File) backupName() string {
	prefix, suffix := f.nameParts()
	for at := f.o.Now().UTC(); ; at = at.Add(time.Millisecond) {
		name := filepath.Join(filepath.Dir(f.o.Path), prefix+at.Format(backupTime)+suffix)
		_, err := os.Lstat(name)
		_, errCompressed := os.Lstat(name + compressed)
		if errors.Is(err, os.ErrNotExist) && errors.Is(errCompressed, os.ErrNotExist) {
			return name
		}
	}
}

// backup is a rotated file.
type backup struct {
	path string
	at   time.Time
}

// cleanUp removes rotated files that are too many or too old, and compresses the others.
func (f *File) cleanUp() error {
	f.cleanUpMu.Lock()
	defer f.cleanUpMu.Unlock()
	backups, err := f.backups()
	if err != nil {
		return err
	}
	var errs []error
	for i, b := range backups {
		tooMany := f.o.MaxBackups > 0 && i >= f.o.MaxBackups
		tooOld := f.o.MaxAge > 0 && f.o.Now().Sub(b.at) > time.Duration(f.o.MaxAge)*day
		switch {
		case tooMany || tooOld:
			errs = append(errs, os.Remove(b.path))
		case f.o.Compress && !strings.HasSuffix(b.path, compressed):
			errs = append(errs, compress(b.path))
		}
	}
	return errors.Join(errs...)
}

// backups returns the rotated files, the newest first.
func (f *File) backups() ([]backup, error) {
	dir := filepath.Dir(f.o.Path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	prefix, suffix := f.nameParts()
	var out []backup
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok || e.IsDir() {
			continue
		}
		if name, ok = strings.CutSuffix(strings.TrimSuffix(name, compressed), suffix); !ok {
			continue
		}
		if at, err := time.Parse(backupTime, name); err == nil {
			out = append(out, backup{filepath.Join(dir, e.Name()), at})
		}
	}
	slices.SortFunc(out, func(a, b backup) int { return b.at.Compare(a.at) })
	return out, nil
}

// compress replaces a file by a compressed one. The compressed file gets its final name when
// it is complete.
func compress(path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	partial := path + compressed + ".partial"
	out, err := os.OpenFile(partial, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(out)
	_, err = io.Copy(z, in)
	if err = errors.Join(err, z.Close(), out.Close()); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	if err := os.Rename(partial, path+compressed); err != nil {
		return err
	}
	return os.Remove(path)
}
