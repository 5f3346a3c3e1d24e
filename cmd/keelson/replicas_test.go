package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/transcript"
)

// TestReplicas runs the commands of docs/replicas.md, with free ports and the etcd of `keelson envtest install`. A
// second server with its own authority and key does not start. With those of the first server, both accept the
// same credentials.
func TestReplicas(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("kubectl is not on the PATH; install it to run the commands of the page")
	}
	steps, err := transcript.Read("../../docs/replicas.md", "A recipe")
	if err != nil {
		t.Fatal(err)
	}
	dir, programs := t.TempDir(), t.TempDir()
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"keelson", etcdName} {
		if err := os.Symlink(self, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Cleanup(func() {
		files, _ := filepath.Glob(filepath.Join(dir, "*.pid")) // the pattern is valid
		for _, file := range files {
			content, _ := os.ReadFile(file)
			if pid, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && pid > 1 {
				if p, err := os.FindProcess(pid); err == nil {
					_ = p.Kill() // long gone if the test went well
				}
			}
		}
		if t.Failed() {
			for _, name := range []string{"a.log", "b.log", "etcd.log"} {
				content, _ := os.ReadFile(filepath.Join(dir, name))
				t.Logf("%s: %.2000s", name, content)
			}
		}
	})
	ports := []string{"etcd --data-dir etcd", "etcd --data-dir etcd --listen-peer-urls http://127.0.0.1:0"}
	for _, fixed := range []string{"2379", "6443", "6444"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String()) // it has a port
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		ports = append(ports, fixed, port)
	}
	free := strings.NewReplacer(ports...) // other programs may use the ports of the page
	environment := []string{"HOME=" + t.TempDir(), "KEELSON_TEST_MAIN=1", fmt.Sprintf("PATH=%s:%s", programs, os.Getenv("PATH"))}
	for _, s := range steps {
		s.Script, s.Output = free.Replace(s.Script), free.Replace(s.Output)
		if d := s.Differs(s.Run(t.Context(), environment...)); d != "" {
			t.Fatal(d)
		}
	}
}
