package embedded

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

// TestImportOnAFullDisk checks that an import that runs out of space does not wait for space but fails with
// ENOSPC, whichever write fails first.
func TestImportOnAFullDisk(t *testing.T) {
	writes := func(room int64) (used int64, imported error) {
		var written atomic.Int64
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			switch op.Kind {
			case errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpCreate:
				if written.Add(1) > room {
					return syscall.ENOSPC
				}
			}
			return nil
		}))
		records := func(yield func(Record, error) bool) {
			for i := range 3000 {
				e := storage.Entry{
					Key: fmt.Sprintf("/%05d", i), Value: compressibleBytes(1000, int64(i)), ModRevision: 7, CreateRevision: 7,
				}
				if !yield(Record{Entry: e}, nil) {
					return
				}
			}
		}
		ended := make(chan error, 1)
		go func() {
			ended <- Import(testOptions(Options{FS: fs, Dir: "d", MemTableBytes: 256 << 10}), 10, records, nil)
		}()
		err := receive(t, fmt.Sprintf("the import with room for %d writes ends", room), ended)
		return written.Load(), err
	}
	all, err := writes(1 << 40)
	if err != nil {
		t.Fatal(err)
	}
	step := max(all/4, 1)
	if os.Getenv("KEELSON_LONG") != "" {
		step = max(all/100, 1)
	}
	for room := step / 2; room < all; room += step {
		if _, err := writes(room); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("room for %d of %d writes: %v", room, all, err)
		}
	}
}
