package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	token      = "soak-token"
	startLimit = 2 * time.Minute
	stopLimit  = 2 * time.Minute
)

// server is the child process.
type server struct {
	url, dataDir string
	cmd          *exec.Cmd
	log          *os.File
	ended        chan struct{} // closed when err is set
	err          error
}

// build compiles the server of this source tree.
func build(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "keelson")
	c := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/keelson-dev/keelson/cmd/keelson")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the server: %w\n%s", err, out)
	}
	return program, nil
}

// startServer starts a server on a new data directory below o.dir.
func startServer(ctx context.Context, o *options, errOut io.Writer) (*server, error) {
	program := o.program
	if program == "" {
		var err error
		if program, err = build(ctx, o.dir); err != nil {
			return nil, err
		}
	}
	tokens := filepath.Join(o.dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+`,soak,1,"system:masters"`+"\n"), 0o600); err != nil {
		return nil, err
	}
	s := &server{dataDir: filepath.Join(o.dir, "data"), ended: make(chan struct{})}
	args := []string{"serve", "--data-dir", s.dataDir, "--secure-port", "0", "--token-auth-file", tokens,
		"--service-cluster-ip-range", "10.0.0.0/16"}
	if o.history > 0 {
		args = append(args, "--history-window", o.history.String())
	}
	var err error
	if s.log, err = os.Create(filepath.Join(o.dir, "keelson.log")); err != nil {
		return nil, err
	}
	s.cmd = exec.Command(program, args...)
	s.cmd.Stderr = s.log
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	fmt.Fprintf(errOut, "soak: process %d: %s\n", s.cmd.Process.Pid, strings.Join(s.cmd.Args, " "))
	hello := make(chan string, 1)
	go func() {
		lines := bufio.NewReader(stdout)
		line, _ := lines.ReadString('\n') // the start has failed if the line is empty
		hello <- line
		_, _ = io.Copy(io.Discard, lines)
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	select {
	case line := <-hello:
		if _, address, found := strings.Cut(strings.TrimSpace(line), "https://"); found {
			s.url = "https://" + address
			return s, nil
		}
		err = fmt.Errorf("the server said %q", line)
	case <-time.After(startLimit):
		err = errors.New("the server did not start in time")
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.stop()
	return nil, err
}

// stop ends the server with SIGTERM, or kills it if that takes too long.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // the process may have ended
	select {
	case <-s.ended:
	case <-time.After(stopLimit):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	_ = s.log.Close()
}

// procFigures are figures from /proc about a process; they are zero on systems without /proc.
type procFigures struct {
	anonymous   int64 // bytes of resident anonymous memory
	descriptors int
	cpu         time.Duration
}

func readProc(pid int) procFigures {
	var p procFigures
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	status, _ := os.ReadFile(filepath.Join(dir, "status")) // missing on other systems
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kilobytes, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			p.anonymous = kilobytes << 10
		}
	}
	descriptors, _ := os.ReadDir(filepath.Join(dir, "fd"))
	p.descriptors = len(descriptors)
	stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
	// The second field is the command in parentheses, which may contain spaces.
	_, rest, _ := strings.Cut(string(stat), ") ")
	const utime, stime, tick = 11, 12, 10 * time.Millisecond
	if fields := strings.Fields(rest); len(fields) > stime {
		for _, f := range fields[utime : stime+1] {
			ticks, _ := strconv.ParseInt(f, 10, 64)
			p.cpu += time.Duration(ticks) * tick
		}
	}
	return p
}

// diskUsage returns the bytes of the blocks of all files below a directory. Files that the engine deletes meanwhile
// are not counted.
func diskUsage(dir string) int64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // it was deleted in the meantime
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // it was deleted in the meantime
		}
		sum += bytesOnDisk(info)
		return nil
	})
	return sum
}
