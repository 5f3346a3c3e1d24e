//go:build unix

package filewatch

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// within runs do, and fails the test if it takes more than a minute.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s has not ended after a minute", what)
	}
}

// TestFilesWithoutEnd replaces a followed file by a pipe, a device and a file that is too large, and then by a
// good file again.
func TestFilesWithoutEnd(t *testing.T) {
	p := newPart(t)
	p.write(t, "a", "one")
	if err := p.Load(); err != nil {
		t.Fatal(err)
	}
	path, moved := filepath.Join(p.dir, "a"), filepath.Join(p.dir, "new")
	for _, step := range []struct {
		what string
		make func() error
		want string
	}{
		{"a named pipe", func() error { return syscall.Mkfifo(moved, 0o600) }, "read a: it is not a regular file"},
		{"a directory", func() error { return os.Mkdir(moved, 0o700) }, "read a: is a directory"},
		{"a link to a device", func() error { return os.Symlink("/dev/zero", moved) }, "read a: it is not a regular file"},
		{"a file of 1 TiB", func() error {
			if err := os.WriteFile(moved, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(moved, 1<<40)
		}, "read a: it has more than 67108864 bytes"},
	} {
		if err := step.make(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(moved, path); err != nil {
			t.Fatal(err)
		}
		p.now = p.now.Add(2 * repeatAfter)
		within(t, "Check with "+step.what, p.Check)
		p.expect(t, step.what, "one", step.want)
		within(t, "Refresh with "+step.what, p.Refresh)
		p.expect(t, step.what+", once more", "one")
		within(t, "Load with "+step.what, func() {
			if err := (&Watch{Apply: p.apply}).Load(); err == nil || !strings.Contains(err.Error(), step.want[len("read a"):]) {
				t.Errorf("%s: Load returns %v", step.what, err)
			}
		})
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	p.write(t, "a", "two")
	p.Check()
	p.expect(t, "a good file", "two", "applied")
}
