package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/rig"
	"github.com/keelson-dev/keelson/test/takeover"
)

// program is the server as a process. It is started again and again on one directory and port.
type program struct {
	binary string
	dir    string
	port   string
	flags  []string // further flags of "keelson serve"
	cmd    *exec.Cmd
	stderr *strings.Builder
}

const token = "chaos-token"

// patience is how long a test waits for something that must happen.
const patience = time.Minute

// programs is the directory of the server's binary, which is built once for all tests.
var programs string

var built = sync.OnceValues(func() (string, error) { return takeover.Build(programs, "../..") })

// server returns the path of the server's binary.
func server(t *testing.T) string {
	t.Helper()
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

func buildProgram(t *testing.T) *program {
	t.Helper()
	p := &program{binary: server(t), dir: t.TempDir(), port: "0"}
	p.writeTokens(t)
	t.Cleanup(func() { p.kill() })
	return p
}

func (p *program) writeTokens(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(
		filepath.Join(p.dir, "tokens.csv"), []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600,
	); err != nil {
		t.Fatal(err)
	}
}

// serveArguments starts the server without controllers: the history of the objects has only what clients asked for.
func (p *program) serveArguments() []string {
	return append([]string{"serve", "--data-dir", filepath.Join(p.dir, "data"), "--controllers=-*",
		"--secure-port", p.port, "--token-auth-file", filepath.Join(p.dir, "tokens.csv")}, p.flags...)
}

// start starts the server and returns its URL when the server reports that it is ready.
func (p *program) start() (string, error) {
	p.stderr = &strings.Builder{}
	p.cmd = exec.Command(p.binary, p.serveArguments()...)
	p.cmd.Stderr = p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := p.cmd.Start(); err != nil {
		return "", err
	}
	process := p.cmd.Process
	defer time.AfterFunc(patience, func() { _ = process.Kill() }).Stop() // ends the reading of the output
	line, err := bufio.NewReader(stdout).ReadString('\n')
	_, url, found := strings.Cut(strings.TrimSpace(line), "https://")
	if err != nil || !found {
		p.kill()
		return "", fmt.Errorf("the server does not start: %q, %v\n%s", line, err, p.stderr)
	}
	go io.Copy(io.Discard, stdout) //nolint:errcheck // ends with the process
	_, p.port, _ = strings.Cut(url, ":")
	return "https://" + url, nil
}

// kill ends the process at once if it is running.
func (p *program) kill() {
	if p.cmd != nil {
		p.cmd.Process.Kill() //nolint:errcheck // the process may have ended
		p.cmd.Wait()         //nolint:errcheck // returns an error because the process was killed
		p.cmd = nil
	}
}

// TestKillServer kills the server's process while clients write, read and watch, again and again on the same
// directory. After each restart the whole history is checked: no acknowledged write is lost, no revision is used
// twice, no watch misses or repeats an event.
func TestKillServer(t *testing.T) {
	p := buildProgram(t)
	transport := insecure()
	defer transport.CloseIdleConnections()
	s := rig.NewScenario(t, rig.Seeded(t), &http.Client{Transport: transport})
	s.Token = token
	up := func() {
		url, err := p.start()
		if err != nil {
			t.Fatal(err)
		}
		s.At(url, url)
	}
	up()
	s.Begin(true)
	for s.Round = range rig.Rounds(5, 200) {
		life := time.Duration(s.Rng.Int64N(int64(400 * time.Millisecond)))
		ctx, cancel := context.WithCancel(context.Background())
		killed := make(chan struct{})
		time.AfterFunc(life, func() {
			p.kill()
			close(killed)
			cancel()
		})
		s.Load(ctx, 6, 3)
		<-killed
		s.Rec.Settle()
		up()
		if err := s.Check(); err != nil {
			t.Fatalf("round %d: %v\n%s", s.Round, err, p.stderr)
		}
	}
	s.Round++
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
}
