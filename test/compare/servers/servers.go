// Package servers starts kube-apiserver and Keelson with equal settings, for the commands that compare the two or record
// answers of kube-apiserver. Everything that it starts listens on 127.0.0.1 and keeps its data in one temporary directory.
package servers

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Token is the token of a member of system:masters on the servers that this package starts.
const Token = "admintoken"

// Settings are what the servers have in common.
type Settings struct {
	Emulated string // the minor to behave as, as 1.36; empty for the newest
	AllAlpha bool   // with all alpha and beta gates, and all versions of the API
	Gates    string // more feature gates, as A=true,B=false; they come after those of AllAlpha
}

// A Group is the servers that were started together. Close ends them.
type Group struct {
	settings  Settings
	dir       string
	key       string
	tokens    string
	processes []*process
}

// A Server is a server that was started.
type Server struct {
	URL     string
	Etcd    string   // the URL of its etcd; empty if it has none
	Program []string // the program with the arguments without which it cannot be asked for its flags and gates
}

type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when it has ended
}

// NewGroup makes the temporary directory with what all servers need.
func NewGroup(s Settings) (*Group, error) {
	dir, err := os.MkdirTemp("", "keelson-compare-")
	if err != nil {
		return nil, err
	}
	g := &Group{settings: s, dir: dir, key: filepath.Join(dir, "sa.key"), tokens: filepath.Join(dir, "tokens.csv")}
	const bits = 2048
	key, err := rsa.GenerateKey(rand.Reader, bits) // an RSA key, as when the answers in test/contract were recorded
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	err = errors.Join(os.WriteFile(g.key, block, 0o600),
		os.WriteFile(g.tokens, []byte(Token+`,admin,admin,"system:masters"`+"\n"), 0o600))
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// Close ends all servers of the group and removes their data.
func (g *Group) Close() error {
	for i := len(g.processes) - 1; i >= 0; i-- {
		p := g.processes[i]
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	}
	return os.RemoveAll(g.dir)
}

// common returns the flags that both servers get. 192.0.2.1 is an address for documentation (RFC 5737): kube-apiserver
// refuses to advertise a loopback address since 1.37.
func (g *Group) common(port int) []string {
	args := []string{
		"--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(port), "--advertise-address", "192.0.2.1",
		"--cert-dir", filepath.Join(g.dir, "certs-"+strconv.Itoa(port)), "--token-auth-file", g.tokens,
		"--authorization-mode", "Node,RBAC", "--service-cluster-ip-range", "10.0.0.0/16", "--allow-privileged=true",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", g.key, "--service-account-signing-key-file", g.key,
	}
	if g.settings.Emulated != "" {
		args = append(args, "--emulated-version", "kube="+g.settings.Emulated)
	}
	gates := g.settings.Gates
	if g.settings.AllAlpha {
		gates = strings.Trim("AllAlpha=true,AllBeta=true,"+gates, ",")
		args = append(args, "--runtime-config", "api/all=true")
	}
	if gates != "" {
		args = append(args, "--feature-gates", gates)
	}
	return args
}

// KubeAPIServer starts an etcd and a kube-apiserver and waits until it is ready.
func (g *Group) KubeAPIServer(ctx context.Context, program, etcd string) (*Server, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	client, peer := "http://127.0.0.1:"+strconv.Itoa(ports[0]), "http://127.0.0.1:"+strconv.Itoa(ports[1])
	if _, err := g.start("etcd", etcd, "--data-dir", filepath.Join(g.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer); err != nil {
		return nil, err
	}
	s := &Server{URL: "https://127.0.0.1:" + strconv.Itoa(ports[2]), Etcd: client, Program: []string{program}}
	p, err := g.start("kube-apiserver", program, append(g.common(ports[2]), "--etcd-servers", client)...)
	if err != nil {
		return nil, err
	}
	return s, p.awaitReady(ctx, s.URL)
}

// Keelson starts Keelson with the defaults of kube-apiserver and its data in memory, and waits until it is ready. Without a
// program it builds cmd/keelson first. No controller runs that would be in kube-controller-manager.
func (g *Group) Keelson(ctx context.Context, program string) (*Server, error) {
	if program == "" {
		program = filepath.Join(g.dir, "keelson")
		build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/keelson-dev/keelson/cmd/keelson")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	s := &Server{URL: "https://127.0.0.1:" + strconv.Itoa(ports[0]), Program: []string{program, "kube-apiserver", "--storage", "memory"}}
	args := append(s.Program[1:len(s.Program):len(s.Program)], g.common(ports[0])...)
	args = append(args, "--controllers=-*", "--quota-usage=false", "--default-service-accounts=false")
	p, err := g.start("keelson", program, args...)
	if err != nil {
		return nil, err
	}
	return s, p.awaitReady(ctx, s.URL)
}

func (g *Group) start(name, program string, args ...string) (*process, error) {
	p := &process{log: filepath.Join(g.dir, name+".log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	p.cmd = exec.Command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	g.processes = append(g.processes, p)
	go func() {
		_ = p.cmd.Wait() // the log says why it ended
		close(p.ended)
	}()
	return p, nil
}

// awaitReady waits until /readyz is ok. It fails after two minutes, or when the process ends, with the end of its log.
func (p *process) awaitReady(ctx context.Context, server string) error {
	const limit, pause = 2 * time.Minute, 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the server belongs to this command
		DisableKeepAlives: true,
	}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/readyz", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+Token)
		if resp, err := c.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body) // only the status matters
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended:\n%s", p.cmd.Path, tail(p.log))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.cmd.Path, ctx.Err(), tail(p.log))
		case <-time.After(pause):
		}
	}
}

// tail returns the last lines of a file.
func tail(path string) string {
	const most = 10
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// freePorts returns different ports on which nobody listens at the moment.
func freePorts(n int) ([]int, error) {
	var out []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out, nil
}
