//go:build unix

package embedded

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestIrregularFiles: somebody else may be able to write to the directory of a store. A file name can then be a
// named pipe or a device, from which a read may never end, and LOCK can be a link to a file that locking would
// empty. Every way to open the store must fail with an error that names the file.
func TestIrregularFiles(t *testing.T) {
	opens := map[string]func(dir string) error{
		"Open": func(dir string) error {
			s, err := Open(testOptions(Options{Dir: dir}))
			if err == nil {
				s.Close()
			}
			return err
		},
		"OpenReader": func(dir string) error {
			r, err := OpenReader(testOptions(Options{Dir: dir}))
			if err == nil {
				r.Close()
			}
			return err
		},
		"Repair": func(dir string) error {
			_, err := Repair(context.Background(), testOptions(Options{Dir: dir}), RepairOptions{})
			return err
		},
	}
	foreign := filepath.Join(t.TempDir(), "foreign")
	plant := map[string]func(path string) error{
		"a named pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a device":     func(path string) error { return os.Symlink("/dev/zero", path) },
		"a link":       func(path string) error { return os.Symlink(foreign, path) },
	}
	for _, c := range []struct{ file, what, want string }{
		{"", "a named pipe", "not a directory"},
		{"OPTIONS-", "a named pipe", "is not a regular file"},
		{"OPTIONS-", "a device", "is not a regular file"},
		{"MANIFEST-", "a named pipe", "is not a regular file"},
		{"0", "a device", "is not a regular file"}, // a log file of the database
		{revisionFileName, "a named pipe", "is not a regular file"},
		{"LOCK", "a link", "is not empty"},
	} {
		for name, open := range opens {
			if err := os.WriteFile(foreign, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "store")
			if err := mustOpen(t, Options{Dir: dir}).Close(); err != nil {
				t.Fatal(err)
			}
			path := dir
			if c.file != "" {
				found, err := filepath.Glob(filepath.Join(dir, c.file+"*"))
				if err != nil || len(found) == 0 {
					t.Fatalf("no file %s: %v", c.file, err)
				}
				path = found[0]
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if err := plant[c.what](path); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- open(dir) }()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s, %q is %s: %v, want %q", name, c.file, c.what, err, c.want)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s, %q is %s: it waits for ever", name, c.file, c.what)
			}
			if content, err := os.ReadFile(foreign); err != nil || string(content) != "precious" {
				t.Errorf("%s: the file that a link names is changed: %q %v", name, content, err)
			}
		}
	}
}
