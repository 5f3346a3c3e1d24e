package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	userAgent  = "keelson-bench"
	startLimit = 2 * time.Minute
	stopLimit  = 30 * time.Second
	settleTime = 3 * time.Second // before memory is measured
	pollEvery  = time.Millisecond
)

// target is a server to load.
type target struct {
	address string // host:port
	bearer  string // the value of the Authorization header; may be empty
	pid     int    // the root of its process tree; 0 if unknown
}

// loopback returns the address in a server's URL. It refuses other machines, because this program uses a server to its
// limits.
func loopback(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	if u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%q is no https:// URL", server)
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", fmt.Errorf("%q is not on this machine: only loopback addresses are loaded", u.Hostname())
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// launcher starts servers by a command line.
type launcher struct {
	command string // with {dir}, {port}, {tokens}, {key}, {etcd} and {bench}
	etcd    string // the program of the server at {etcd}
	dir     string // for the data of the servers
	token   string
	log     *os.File
}

// instance is a server that this program has started.
type instance struct {
	target
	cmd   *exec.Cmd
	log   *os.File
	etcd  *etcd // the etcd of this server; may be nil
	dir   string
	ended chan error
	ready time.Duration // from the start of the process until /readyz returned 200
}

// start starts a server on empty data and waits until it is ready.
func (l *launcher) start(ctx context.Context) (*instance, error) {
	dir, err := os.MkdirTemp(l.dir, "data-")
	if err != nil {
		return nil, err
	}
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(l.token+`,admin,admin,"system:masters"`+"\n"+
		readerToken+",reader,reader\n"), 0o600); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	key := filepath.Join(dir, "key.pem")
	if err := writeKey(key); err != nil {
		return nil, err
	}
	s := &instance{dir: dir, log: l.log}
	cluster := ""
	if strings.Contains(l.command, "{etcd}") {
		if s.etcd, err = startEtcd(l.etcd, dir, l.log); err != nil {
			return nil, err
		}
		cluster = s.etcd.url
	}
	words := strings.Fields(
		strings.NewReplacer(
			"{dir}", data, "{port}", port, "{tokens}", tokens, "{key}", key, "{etcd}", cluster, "{bench}", self,
		).Replace(l.command),
	)
	if len(words) == 0 {
		return nil, errors.New("--start is empty")
	}
	s.address, s.bearer = net.JoinHostPort("127.0.0.1", port), "Bearer "+l.token
	if err := s.launch(ctx, words); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// launch starts the process and waits until it is ready.
func (i *instance) launch(ctx context.Context, words []string) error {
	cmd, ended := exec.Command(words[0], words[1:]...), make(chan error, 1)
	cmd.Stdout, cmd.Stderr = i.log, i.log
	ownGroup(cmd)
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	i.cmd, i.ended, i.pid = cmd, ended, cmd.Process.Pid
	go func() { ended <- cmd.Wait() }()
	if err := i.awaitReady(ctx, begin.Add(startLimit)); err != nil {
		return err
	}
	i.ready = time.Since(begin)
	return nil
}

// restart ends the server with a signal and starts it again on its data.
func (i *instance) restart(ctx context.Context) error {
	words := i.cmd.Args
	i.end()
	i.cmd = nil
	return i.launch(ctx, words)
}

// end ends the process and its child processes.
func (i *instance) end() {
	if i.cmd == nil {
		return
	}
	_ = interruptGroup(i.cmd) // it may have ended
	select {
	case <-i.ended:
	case <-time.After(stopLimit):
	}
	_ = killGroup(i.cmd)
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), l.Close()
}

func (i *instance) awaitReady(ctx context.Context, deadline time.Time) error {
	for time.Now().Before(deadline) {
		select {
		case err := <-i.ended:
			i.ended <- err
			return fmt.Errorf("the server ended: %v", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
		if nc, err := net.Dial("tcp", i.address); err != nil {
			continue // the server does not listen yet; this check is cheap
		} else if err := nc.Close(); err != nil {
			return err
		}
		if i.pollReady(deadline) {
			return nil
		}
	}
	return errors.New("the server did not get ready")
}

// pollReady asks for /readyz on one connection until the connection ends or the server is ready.
func (i *instance) pollReady(deadline time.Time) bool {
	c, err := dial(&i.target)
	if err != nil {
		return false
	}
	defer c.close()
	for time.Now().Before(deadline) {
		a, err := c.do(&request{method: http.MethodGet, path: "/readyz", accept: "*/*"}, dialTimeout)
		if err != nil {
			return false
		}
		if a.status == http.StatusOK {
			return true
		}
		time.Sleep(pollEvery)
	}
	return false
}

// stop ends the server and deletes its data.
func (i *instance) stop() {
	i.end()
	i.stopEtcd()
	_ = os.RemoveAll(i.dir)
}

func (i *instance) stopEtcd() {
	if i.etcd != nil {
		i.etcd.stop()
	}
}
