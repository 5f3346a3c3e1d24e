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

// TestReplicas runs the commands of docs/replicas.md, with the etcd of `keelson envtest install`. A second server with its own
// authority and key does not start. With those of the first server, both accept the same credentials.
func TestReplicas(t *testing.T) {
	recipe{
		document: "replicas.md", section: "A recipe", ports: []string{"2379", "6443", "6444"},
		replaced: []string{"etcd --data-dir etcd", "etcd --data-dir etcd --listen-peer-urls http://127.0.0.1:0"},
	}.run(t)
}

// TestAvailability runs the commands of docs/availability.md: a copy, the loss of the data directory, a restore, a standby, and takeovers.
func TestAvailability(t *testing.T) {
	recipe{document: "availability.md", section: "Try it", ports: []string{"6443", "6444"}}.run(t)
}

// TestThreeMembers runs the commands of docs/members.md: three members, one of which is lost and replaced, and one that goes on alone.
func TestThreeMembers(t *testing.T) {
	recipe{document: "members.md", section: "Try it", ports: []string{"6443", "6444", "6445", "2380", "2381", "2382"}}.run(t)
}

// TestRestoreDrill runs the commands of the restore drill in docs/operations.md.
func TestRestoreDrill(t *testing.T) {
	recipe{document: "operations.md", section: "A restore drill", ports: []string{"6443", "6444"}}.run(t)
}

// recipe is a section of a document whose commands start servers. Each server NAME has its log in NAME.log and the id of its process in
// NAME.pid.
type recipe struct {
	document, section string
	ports             []string // of the document, which are replaced by free ones: other programs may use them
	replaced          []string // pairs of texts: the second one takes the place of the first one
}

// run runs the commands in an empty directory. On the PATH are this program as keelson and etcd, and kubectl, which must be there.
func (r recipe) run(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("kubectl is not on the PATH; install it to run the commands of the page")
	}
	steps, err := transcript.Read(filepath.Join("..", "..", "docs", r.document), r.section)
	if err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"keelson", etcdName} {
		if err := os.Symlink(self, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(t.TempDir())
	t.Cleanup(func() { endRecipe(t) })
	replaced := r.replaced
	for _, fixed := range r.ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String()) // it has a port
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		replaced = append(replaced, fixed, port)
	}
	free := strings.NewReplacer(replaced...)
	environment := []string{"HOME=" + t.TempDir(), "KEELSON_TEST_MAIN=1", fmt.Sprintf("PATH=%s:%s", programs, os.Getenv("PATH"))}
	for _, s := range steps {
		s.Script, s.Output = free.Replace(s.Script), free.Replace(s.Output)
		if d := s.Differs(s.Run(t.Context(), environment...)); d != "" {
			t.Fatal(d)
		}
	}
}

// endRecipe kills what the commands have left, and logs what the servers said if the test has failed.
func endRecipe(t *testing.T) {
	files, _ := filepath.Glob("*.pid") // the pattern is valid
	for _, file := range files {
		content, _ := os.ReadFile(file)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && pid > 1 {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill() // long gone if the test went well
			}
		}
	}
	logs, _ := filepath.Glob("*.log")
	for _, name := range logs {
		if content, err := os.ReadFile(name); err == nil && t.Failed() {
			t.Logf("%s: %.2000s", name, content)
		}
	}
}
