//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestCheckWithoutPermission runs keelson check as a user that may not read the data directory.
func TestCheckWithoutPermission(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir, err := os.MkdirTemp("", "keelson-check-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the other user runs the program in it
		t.Fatal(err)
	}
	program := filepath.Join(dir, "keelson")
	if out, err := exec.Command("cp", os.Args[0], program).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	data := filepath.Join(dir, "data")
	p := run(t, "serve", "--data-dir", data, "--secure-port", "0")
	p.stop(t)
	c := exec.Command(program, "check", "--data-dir", data)
	c.Env = append(os.Environ(), "KEELSON_TEST_MAIN=1")
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := c.CombinedOutput()
	want := "keelson: cannot read the data directory " + data + ": permission denied; run the command as the user of the server\n"
	if err == nil || string(out) != want {
		t.Errorf("%v %q, want %q", err, out, want)
	}
}
