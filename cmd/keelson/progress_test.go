package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
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
	q.stop() // it also returns if nothing was shown yet
}

// TestSaveDoesNotOverwrite checks that commands replace an existing file only with --force.
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
