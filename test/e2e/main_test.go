package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// programs is the directory in which the Makefile puts the programs.
var programs = func() string {
	if p := os.Getenv("PROGRAMS"); p != "" {
		return p
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "keelson-e2e")
}()

// TestMain builds Keelson from the source tree around this module, so that a test never uses an older one.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("KEELSON_BUILD") != "no" {
		build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(programs, "keelson"), "./cmd/keelson")
		build.Dir = filepath.Join("..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building keelson: %v\n%s", err, out)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// program returns the path of a built program.
func program(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(programs, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is not built: make %s", path, name)
	}
	return path
}

// logDir returns a directory for the logs of the test. It is kept if the test fails or KEELSON_KEEP is set.
func logDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "keelson-e2e-"+strings.ReplaceAll(t.Name(), "/", "-")+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() || os.Getenv("KEELSON_KEEP") != "" {
			t.Logf("logs and data are in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

// eventually waits until check returns nil.
func eventually(t *testing.T, within time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	start := time.Now()
	for {
		err := check(ctx)
		if err == nil {
			t.Logf("%s: after %v", what, time.Since(start).Round(time.Millisecond))
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %v", what, within, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
