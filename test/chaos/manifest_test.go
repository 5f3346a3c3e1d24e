package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/keelson-dev/keelson/storage"
	"github.com/keelson-dev/keelson/storage/embedded"
)

// manifestDir is set in the environment of a test binary whose manifest cannot
// be synced any more once it has written something.
const manifestDir = "KEELSON_CHAOS_MANIFEST_DIR"

// brokenManifest writes until the database's own background work fails.
func brokenManifest(dir string) error {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData
		if sync && broken.Load() && strings.Contains(op.Path, "MANIFEST") {
			return errors.New("input/output error")
		}
		return nil
	}))
	o := options(embedded.Options{Dir: dir, FS: fs})
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := embedded.Open(o)
	if err != nil {
		return err
	}
	broken.Store(true)
	for i := 0; ; i++ {
		value := []byte(strings.Repeat("x", 10_000))
		if _, err := s.Commit(
			context.Background(), storage.Txn{Ops: []storage.Op{storage.Put(fmt.Sprintf("/%d", i), value)}},
		); err != nil {
			select {} // what ends the process is the database's own goroutine
		}
		fmt.Println(i)
	}
}

// TestFatal proves that a failure in the database's background ends the process,
// with a message, and loses nothing that was acknowledged.
func TestFatal(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), manifestDir+"="+dir)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(patience, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) }).Stop() // it says where it is
	if err := cmd.Wait(); err == nil {
		t.Fatal("the process went on")
	}
	for _, want := range []string{"the store has failed and accepts no more writes", "input/output error", dir} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("the message does not say %q:\n%.2000s", want, stderr.String())
		}
	}
	s, err := embedded.Open(options(embedded.Options{Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	acknowledged := strings.Fields(stdout.String())
	for _, i := range acknowledged {
		if e, _, err := s.Get(t.Context(), "/"+i, 0); err != nil || e.ModRevision == 0 {
			t.Errorf("lost: %s, %v", i, err)
		}
	}
	if len(acknowledged) == 0 {
		t.Error("nothing was acknowledged")
	}
}
