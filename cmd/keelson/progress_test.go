package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, what: "Restoring", show: megabytes, state: func() (int64, int64) { return 1e6, 4e6 }}
	p.print()
	if got := out.String(); got != "Restoring: 1.0 MB of 4.0 MB\n" {
		t.Errorf("%q", got)
	}
	out.Reset()
	p.terminal = true
	p.print()
	if got := out.String(); !strings.HasPrefix(got, "\r[=======                       ] Restoring: 1.0 MB of 4.0 MB") {
		t.Errorf("%q", got)
	}
	out.Reset()
	p.show, p.state = keys, func() (int64, int64) { return 7, 0 }
	p.print()
	if got := strings.TrimSpace(out.String()); got != "Restoring: 7 keys" {
		t.Errorf("%q", got)
	}
	q := startProgress(&out, "", keys, p.state)
	q.stop() // it returns also before anything was shown
}

// TestSaveDoesNotOverwrite checks that commands that write a file replace one only if they are told to.
func TestSaveDoesNotOverwrite(t *testing.T) {
	dir := t.TempDir()
	p := run(t, "serve", "--data-dir", filepath.Join(dir, "data"), "--secure-port", "0")
	p.stop(t)
	file := filepath.Join(dir, "file")
	for _, command := range []string{"save", "export-etcd"} {
		if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, errOut, code := keelson("snapshot", command, file, "--data-dir", filepath.Join(dir, "data"))
		if want := "keelson: " + file + " exists; --force replaces it\n"; code != 1 || errOut != want {
			t.Errorf("%s: %d %q, want %q", command, code, errOut, want)
		}
		if content, err := os.ReadFile(file); err != nil || string(content) != "mine" {
			t.Errorf("%s: the file is %q %v", command, content, err)
		}
		mustRun(t, "snapshot", command, file, "--force", "--data-dir", filepath.Join(dir, "data"))
	}
}

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
