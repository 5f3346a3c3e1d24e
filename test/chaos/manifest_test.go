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

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// manifestDir is an environment variable. It is set for the test binary when it runs as a process in which syncs of
// the database's MANIFEST file fail after some writes.
const manifestDir = "KEELSON_CHAOS_MANIFEST_DIR"

// brokenManifest writes until the background work of the database fails.
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
			select {} // a goroutine of the database ends the process
		}
		fmt.Println(i)
	}
}

// TestFatal checks that an error in the background work of the database ends the process with a message, and that no
// acknowledged write is lost.
func TestFatal(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), manifestDir+"="+dir)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// prints the stacks of all goroutines
	defer time.AfterFunc(patience, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) }).Stop()
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
