//go:build unix

package takeover

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// disk is a small file system. A nil disk cannot be filled.
type disk struct{ filler string }

// newDisk mounts a small file system at a new directory, until the test ends. It returns nil, and says so, if it cannot: only root can.
func newDisk(t testing.TB, dir string) *disk {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := mount(dir); err != nil {
		t.Logf("without full disks: no small file system can be mounted here: %v", err)
		return nil
	}
	t.Cleanup(func() { // the processes have ended before
		if err := unmount(dir); err != nil {
			t.Error(err)
		}
	})
	return &disk{filepath.Join(dir, "filler")}
}

// fill takes all space that is left.
func (d *disk) fill() error {
	f, err := os.OpenFile(d.filler, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	for piece := make([]byte, 1<<20); len(piece) > 0; {
		n, err := f.Write(piece)
		switch {
		case errors.Is(err, syscall.ENOSPC):
			piece = piece[:len(piece)/2] // the last bytes too
		case err != nil:
			return errors.Join(err, f.Close())
		case n == 0:
			return errors.Join(errors.New("nothing was written"), f.Close())
		}
	}
	return f.Close()
}

// free gives the space back.
func (d *disk) free() {
	if d != nil {
		_ = os.Remove(d.filler) // there may be none
	}
}
