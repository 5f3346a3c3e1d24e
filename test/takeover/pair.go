//go:build unix

package takeover

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/test/history"
	"github.com/keelson-dev/keelson/test/rig"
)

const (
	token     = "takeover-token"
	namespace = "takeover"
	// lockDuration is --backup-lock-duration of the tests.
	lockDuration = 3 * time.Second
	// patience is how long a test waits for something that must happen.
	patience = 2 * time.Minute
)

// Place is where the copy of a Pair is.
type Place struct {
	// Flags and Env are for each of the two servers.
	Flags, Env [2][]string
	// Proxies are between the servers and the bucket; nil for a directory.
	Proxies [2]*Proxy
}

// Directory is a copy in a new directory.
func Directory(t testing.TB) Place {
	flags := []string{"--from", filepath.Join(t.TempDir(), "copy")}
	return Place{Flags: [2][]string{flags, flags}}
}

// Bucket is a copy in a bucket of an S3 service, with a proxy for each of the servers. env has the credentials.
func Bucket(t testing.TB, service http.Handler, name string, env ...string) (p Place) {
	for i := range p.Proxies {
		p.Proxies[i] = NewProxy(t, service)
		p.Flags[i] = []string{"--from", "s3://" + name + "/copy", "--backup-s3-endpoint", p.Proxies[i].URL}
		p.Env[i] = append([]string{"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/nonexistent"}, env...)
	}
	return p
}

// Pair is two servers that take over from each other.
type Pair struct {
	t       testing.TB
	rng     *rand.Rand // of the goroutine of the test
	binary  string
	place   Place
	clocks  bool // the binary has clocks that can be set
	flags   []string
	sides   [2]*side
	rec     *history.Recorder
	clients []*http.Client
	version atomic.Int64 // of values
	window  atomic.Int64 // of keys, see Pair.key
	unknown atomic.Int64 // the number of writes whose results are not known
	last    atomic.Int64 // the side that has answered last
	done    atomic.Int64 // the number of requests that were done
}

// side is one of the two servers. It is started again when it has ended, unless it is held.
type side struct {
	index            int
	dir, data, clock string // the directory of its files, the one of its data, and the file that sets its clock
	address          string
	disk             *disk // nil if there is none that can be filled
	arguments, env   []string
	log              syncedLog
	mu               sync.Mutex // guards the fields below
	cmd              *exec.Cmd
	exited           chan struct{} // closed when the process has ended
	held             int           // held: the number of those that do not want it to be started
}

// syncedLog is what the processes of a server have written.
type syncedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *syncedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *syncedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 20_000
	text := l.b.String()
	return text[max(0, len(text)-most):]
}

// NewPair returns a pair that is not started yet. It ends with the test.
func NewPair(t testing.TB, rng *rand.Rand, binary string, place Place, flags ...string) *Pair {
	t.Helper()
	p := &Pair{t: t, rng: rng, binary: binary, clocks: Clocks(), place: place, rec: history.NewRecorder(), flags: append(flags,
		"--takeover", "--backup-interval", "200ms", "--backup-lock-duration", lockDuration.String(), "--controllers=-*")}
	for i := range 8 { // those with HTTP/2 send all requests to a server on one connection
		transport := &http.Transport{
			//nolint:gosec // the server runs on this machine
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: i%2 == 0,
		}
		t.Cleanup(transport.CloseIdleConnections)
		p.clients = append(p.clients, &http.Client{Transport: transport, Timeout: 3 * time.Minute})
	}
	for i := range p.sides {
		p.sides[i] = p.newSide(i)
	}
	return p
}

func (p *Pair) newSide(i int) *side {
	p.t.Helper()
	s := &side{index: i, dir: p.t.TempDir()}
	s.data, s.clock = filepath.Join(s.dir, "data"), filepath.Join(s.dir, "clock")
	s.disk = newDisk(p.t, s.data)
	p.t.Cleanup(func() {
		s.hold()
		s.kill()
	})
	tokens := filepath.Join(s.dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		p.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	s.address = l.Addr().String()
	if err := l.Close(); err != nil {
		p.t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(s.address)
	s.arguments = append([]string{p.binary, "standby", "--data-dir", s.data, "--secure-port", port, "--token-auth-file", tokens},
		append(p.place.Flags[i], p.flags...)...)
	s.env = append(append(os.Environ(), p.place.Env[i]...), clockVariable+"="+s.clock)
	return s
}

// start starts a server as a standby, unless it runs or is held.
func (s *side) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held > 0 || s.exited != nil && !closed(s.exited) {
		return nil
	}
	cmd, exited := exec.Command(s.arguments[0], s.arguments[1:]...), make(chan struct{})
	cmd.Env, cmd.Stderr, cmd.Stdout = s.env, &s.log, &s.log
	fmt.Fprintf(&s.log, "--- started at %s\n", time.Now().Format("15:04:05.000"))
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.exited = cmd, exited
	go func() {
		fmt.Fprintf(&s.log, "--- ended: %v\n", cmd.Wait())
		close(exited)
	}()
	return nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// hold keeps a server from being started until release.
func (s *side) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held++
}

func (s *side) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
}

// signal sends a signal to the process, and returns the channel that is closed when it has ended.
func (s *side) signal(sig syscall.Signal) (exited <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.log, "--- %v at %s\n", sig, time.Now().Format("15:04:05.000"))
	if s.cmd == nil {
		c := make(chan struct{})
		close(c)
		return c
	}
	_ = s.cmd.Process.Signal(sig) // it may have ended
	return s.exited
}

// kill ends the process and waits for its end. The caller holds the server.
func (s *side) kill() { <-s.signal(syscall.SIGKILL) }

// supervise starts the servers again and again until ctx ends.
func (p *Pair) supervise(ctx context.Context) {
	for ctx.Err() == nil {
		for _, s := range p.sides {
			if err := s.start(); err != nil {
				p.t.Error(err)
			}
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// sleep waits until a time has passed or ctx has ended.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// stop ends all faults and both servers. What is in flight takes effect before it returns, or never.
func (p *Pair) stop() {
	for _, s := range p.sides {
		s.hold()
		s.disk.free()
		s.kill()
		s.release()
	}
	for _, proxy := range p.place.Proxies {
		if proxy != nil {
			proxy.Heal()
			proxy.settle()
		}
	}
}

// client returns a client that sends each request to the side that choose returns.
func (p *Pair) client(id int, choose func() int) *rig.Client {
	return &rig.Client{
		ID: id, HTTP: p.clients[id%len(p.clients)], Token: token, Rec: p.rec,
		Base: func() string { return "https://" + p.sides[choose()].address },
	}
}

// await waits until one of the servers answers, and returns the state.
func (p *Pair) await(what string) map[string]history.State {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go p.supervise(ctx)
	n := 0
	c := p.client(999, func() int { return n % 2 })
	for began := time.Now(); time.Since(began) < patience; sleep(ctx, 20*time.Millisecond) {
		n++
		request, done := context.WithTimeout(ctx, 5*time.Second)
		if c.CreateNamespace(request, namespace) == nil {
			if list := c.List(request, namespace, 0); list.Outcome == history.Done {
				done()
				return list.Items
			}
		}
		done()
	}
	p.t.Fatalf("no server answers after %s\n%s", what, p.logs())
	return nil
}

func (p *Pair) logs() string {
	var b strings.Builder
	for i, s := range p.sides {
		fmt.Fprintf(&b, "server %d:\n%s\n", i, s.log.String())
	}
	return b.String()
}

// Refuses waits until each of the servers has logged a reason, and checks that none of them answers.
func (p *Pair) Refuses(reason string) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go p.supervise(ctx)
	for _, s := range p.sides {
		wait.Until(p.t, fmt.Sprintf("server %d to log %q", s.index, reason), func() bool { return strings.Contains(s.log.String(), reason) })
	}
	for i, s := range p.sides {
		if err := p.client(i, func() int { return i }).CreateNamespace(ctx, namespace); err == nil {
			p.t.Errorf("server %d answers\n%s", i, s.log.String())
		}
	}
}
