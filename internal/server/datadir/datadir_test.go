package datadir

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDataDirOfOthers checks that files which other users may have put into the data directory are not used.
func TestDataDirOfOthers(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for _, name := range []string{PKI, lockName} {
		dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), name)
		if err := os.Symlink(elsewhere, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if lock, err := Open(dir, quiet); err == nil {
			t.Errorf("%s: a symbolic link is followed: %v", name, lock.Close())
		} else if !strings.Contains(err.Error(), "is a symbolic link") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(elsewhere); err == nil {
			t.Errorf("%s: something was made where the link points to", name)
		}
	}
	disk, link := t.TempDir(), filepath.Join(t.TempDir(), "data")
	if err := os.Symlink(disk, link); err != nil {
		t.Fatal(err)
	}
	lock, err := Open(link, quiet)
	if err != nil {
		t.Fatalf("a link to another disk: %v", err)
	}
	if _, err := Open(disk, quiet); !errors.Is(err, ErrUsed) {
		t.Errorf("a second process: %v, want %v", err, ErrUsed)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(Certificates(disk), 0o755); err != nil {
		t.Fatal(err)
	}

	// If others may write to the directory of keys, the start removes the permission and logs it.
	var out strings.Builder
	for _, path := range []string{disk, Certificates(disk)} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	before := map[string]os.FileMode{"ca.key": 0o666, "apiserver.key": 0o644, "admin.key": 0o660, "front-proxy-ca.key": 0o400}
	after := map[string]os.FileMode{"ca.key": 0o600, "apiserver.key": 0o600, "admin.key": 0o660, "front-proxy-ca.key": 0o400}
	for key, mode := range before {
		if err := os.WriteFile(filepath.Join(Certificates(disk), key), nil, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(disk, PKI, key), mode); err != nil {
			t.Fatal(err)
		}
	}
	// Somebody else put a link there.
	foreign := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(foreign, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(foreign, filepath.Join(disk, PKI, "link.key")); err != nil {
		t.Fatal(err)
	}
	if err := tighten(disk, slog.New(slog.NewTextHandler(&out, nil))); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(Certificates(disk)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if info, err := os.Stat(foreign); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the mode of a file that a link names: %v %v", info.Mode(), err)
	}
	for key, want := range after {
		if info, err := os.Stat(filepath.Join(disk, PKI, key)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", key, info.Mode(), err, want)
		}
	}
	for _, want := range []string{"its mode has been changed", "others could use a key", "may write to the directory"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log does not say %q: %s", want, &out)
		}
	}
}
