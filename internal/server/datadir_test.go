package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDataDirOfOthers checks that files which other users may have put into the data directory are not used.
func TestDataDirOfOthers(t *testing.T) {
	for _, name := range []string{pkiName, lockName} {
		c := testConfig(t)
		elsewhere := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(c.Storage.DataDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(elsewhere, filepath.Join(c.Storage.DataDir, name)); err != nil {
			t.Fatal(err)
		}
		s, err := Start(context.Background(), c.Config, c.Options)
		if err == nil {
			stop(t, s)
			t.Errorf("%s: a symbolic link is followed", name)
		} else if !strings.Contains(err.Error(), "is a symbolic link") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(elsewhere); err == nil {
			t.Errorf("%s: something was made where the link points to", name)
		}
	}
	c := testConfig(t)
	disk := t.TempDir()
	if err := os.Symlink(disk, c.Storage.DataDir); err != nil {
		t.Fatal(err)
	}
	stop(t, start(t, c))

	// If others may write to the directory of keys, the start removes the permission and logs it.
	var out strings.Builder
	for _, path := range []string{disk, filepath.Join(disk, pkiName)} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	before := map[string]os.FileMode{"ca.key": 0o666, "apiserver.key": 0o644, "admin.key": 0o660, "front-proxy-ca.key": 0o400}
	after := map[string]os.FileMode{"ca.key": 0o600, "apiserver.key": 0o600, "admin.key": 0o660, "front-proxy-ca.key": 0o400}
	for key, mode := range before {
		if err := os.Chmod(filepath.Join(disk, pkiName, key), mode); err != nil {
			t.Fatal(err)
		}
	}
	// Somebody else put a link there.
	foreign := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(foreign, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(foreign, filepath.Join(disk, pkiName, "link.key")); err != nil {
		t.Fatal(err)
	}
	if err := tightenDataDir(disk, slog.New(slog.NewTextHandler(&out, nil))); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(disk, pkiName)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if info, err := os.Stat(foreign); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the mode of a file that a link names: %v %v", info.Mode(), err)
	}
	for key, want := range after {
		if info, err := os.Stat(filepath.Join(disk, pkiName, key)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", key, info.Mode(), err, want)
		}
	}
	for _, want := range []string{"its mode has been changed", "others could use a key", "may write to the directory"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log does not say %q: %s", want, &out)
		}
	}
}
