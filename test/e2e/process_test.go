package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// process is a running program. It ends with the test at the latest.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when err is set
	err   error
}

// start runs a program and appends its output to log. If hello is not nil, it reads the standard output first and
// returns when the program is ready.
func start(t *testing.T, log string, hello func(io.Reader) error, path string, args ...string) *process {
	t.Helper()
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(path, args...), log: log, ended: make(chan struct{})}
	p.cmd.Stderr = file
	// The program ends with the test binary, even if that is killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out *io.PipeReader
	if hello == nil {
		p.cmd.Stdout = file
	} else {
		var in *io.PipeWriter
		out, in = io.Pipe()
		p.cmd.Stdout = in
		go func() { <-p.ended; _ = in.Close() }()
	}
	fmt.Fprintf(file, "=== %s %s\n", path, strings.Join(args, " "))
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		fmt.Fprintf(file, "=== ended: %v\n", p.cmd.ProcessState)
		_ = file.Close()
		close(p.ended)
	}()
	t.Cleanup(func() { p.kill() })
	if hello != nil {
		if err := hello(out); err != nil {
			_ = out.Close()
			p.kill()
			t.Fatalf("%s did not start: %v\n%s", filepath.Base(path), err, tail(log))
		}
		go func() { _, _ = io.Copy(io.Discard, out) }()
	}
	return p
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// stop ends the process with a signal, as an operator would.
func (p *process) stop(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		if p.err != nil {
			t.Errorf("%s after SIGTERM: %v\n%s", p.cmd.Path, p.err, tail(p.log))
		}
	case <-time.After(time.Minute):
		t.Errorf("%s runs a minute after SIGTERM\n%s", p.cmd.Path, tail(p.log))
		p.kill()
	}
}

// server is Keelson as a program that is started several times.
type server struct {
	*process
	dir  string // for logs and data
	port int
	args []string // the arguments of this test
}

const adminToken = "e2e-admin-token"

// serve starts Keelson on new data.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{dir: logDir(t), args: args}
	tokens := adminToken + `,admin,admin,"system:masters"` + "\n"
	if err := os.WriteFile(filepath.Join(s.dir, "tokens.csv"), []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	return s
}

// start starts the server on the existing data, on the same port as before.
func (s *server) start(t *testing.T) {
	t.Helper()
	began := time.Now()
	s.process = start(t, filepath.Join(s.dir, "keelson.log"), s.greeted, program(t, "keelson"), append([]string{"serve",
		"--data-dir", filepath.Join(s.dir, "data"),
		"--secure-port", strconv.Itoa(s.port),
		"--token-auth-file", filepath.Join(s.dir, "tokens.csv"),
		"--service-cluster-ip-range", "10.0.0.0/16"}, s.args...)...)
	t.Logf("keelson is up on port %d after %v", s.port, time.Since(began).Round(time.Millisecond))
}

// greeted reads the lines in which the server prints that it is ready, and its URL.
func (s *server) greeted(out io.Reader) error {
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return err
	}
	_, port, found := strings.Cut(strings.TrimSpace(line), "https://127.0.0.1:")
	if !found {
		return fmt.Errorf("it said %q", line)
	}
	s.port, err = strconv.Atoi(port)
	return err
}

func (s *server) kubeconfig() string { return filepath.Join(s.dir, "data", "kubeconfig") }

// config returns a client configuration without client-side rate limits.
func (s *server) config(t *testing.T) *rest.Config {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	c.QPS = -1
	return c
}

// tail returns the last lines of a file.
func tail(path string) string {
	content, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
