package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/transcript"
)

// TestReadme runs the commands in the section "Five minutes" of the README. The first block starts a server, and
// the others are for a second terminal. TestReadmeOnKubeAPIServer in test/e2e runs those others on kube-apiserver.
func TestReadme(t *testing.T) {
	steps, err := transcript.Read("../../README.md", "Five minutes")
	if err != nil {
		t.Fatal(err)
	}
	if start := steps[0].Script; start != "go run ./cmd/keelson\n" {
		t.Errorf("the server is started with %q", start)
	}
	t.Chdir(t.TempDir()) // the data directory is below the current one
	server := run(t, "--secure-port", "0")
	port := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	if d := steps[0].Differs(port.ReplaceAllString(strings.Join(server.lines, "\n"), "127.0.0.1:6443")); d != "" {
		t.Error(d)
	}
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("kubectl is not on the PATH; install it to run the commands of the README")
	}
	home := "HOME=" + t.TempDir()
	for _, s := range steps[1:] {
		if d := s.Differs(s.Run(t.Context(), home, "KUBECONFIG=keelson-data/kubeconfig")); d != "" {
			t.Error(d)
		}
	}
	server.stop(t)
}
