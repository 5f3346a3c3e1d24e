package examples

import (
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
)

// start returns a server whose certificates and kubeconfig are in a data directory, and the directory.
func start(t *testing.T) (*keelson.Server, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keelson-data")
	conf := config.InMemory()
	conf.Storage.DataDir, conf.Diagnostics.Log = dir, slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := keelson.Start(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return s, dir
}

// program returns the path of a program, and skips the test without it.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not on the PATH", name)
	}
	return path
}

func TestPython(t *testing.T) {
	python := program(t, "python3")
	s, dir := start(t)
	out, err := exec.Command(python, "python/client.py", dir, s.URL()).CombinedOutput()
	const want = "MODIFIED {'colour': 'blue', 'size': 'large'}\nDELETED {'colour': 'blue', 'size': 'large'}\n" +
		"404 configmaps \"from-python\" not found\n"
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}

// TestPlatform runs the commands in the README of the platform: the first block succeeds, and each command of the second
// is refused.
func TestPlatform(t *testing.T) {
	program(t, "kubectl")
	s, _ := start(t)
	content, err := os.ReadFile("platform/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var accepted, refused []string
	command, list := "", &accepted
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "These are refused") {
			list = &refused
		}
		text, ok := strings.CutPrefix(line, "    ")
		if !ok || strings.HasPrefix(text, "keelson ") {
			continue
		}
		command += text
		if !strings.HasSuffix(text, "\\\n") {
			*list, command = append(*list, command), ""
		}
	}
	kubectl := func(command string) (string, error) {
		c := exec.Command("bash", "-c", command)
		c.Dir, c.Env = "platform", append(os.Environ(), "KUBECONFIG="+s.KubeconfigPath(), "HOME="+t.TempDir())
		out, err := c.CombinedOutput()
		return string(out), err
	}
	for _, command := range accepted {
		if out, err := kubectl(command); err != nil {
			t.Errorf("%s%v\n%s", command, err, out)
		}
	}
	reasons := []string{`User "bob" cannot`, "at most 100 GB", "Unsupported value"}
	if len(refused) != len(reasons) {
		t.Fatalf("%d commands are refused, want %d", len(refused), len(reasons))
	}
	for i, command := range refused {
		if out, err := kubectl(command); err == nil || !strings.Contains(out, reasons[i]) {
			t.Errorf("%s%v\n%s\nwant %q", command, err, out, reasons[i])
		}
	}
}
