package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/history"
	"github.com/keelson-dev/keelson/test/rig"
)

// pair is two servers that take over from each other, with a copy in a directory.
type pair struct {
	t       *testing.T
	sides   [2]*side
	rec     *history.Recorder
	http    *http.Client
	flags   []string
	version int // of values
	mu      sync.Mutex
}

// side is one of the two servers.
type side struct {
	program
	address string
	exited  chan struct{} // closed when the process has ended
}

// lockDuration is --backup-lock-duration of the tests.
const lockDuration = 3 * time.Second

func newPair(t *testing.T, flags ...string) *pair {
	t.Helper()
	transport := insecure()
	t.Cleanup(transport.CloseIdleConnections)
	p := &pair{
		t: t, rec: history.NewRecorder(), http: &http.Client{Transport: transport, Timeout: time.Minute},
		flags: append(flags, "--from", filepath.Join(t.TempDir(), "copy"), "--takeover", "--backup-interval", "200ms",
			"--backup-lock-duration", lockDuration.String()),
	}
	for i := range p.sides {
		s := &side{program: *buildProgram(t)}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.address = l.Addr().String()
		_, s.port, _ = net.SplitHostPort(s.address)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		p.sides[i] = s
		p.start(s)
		t.Cleanup(s.end)
	}
	return p
}

// start starts a server as a standby, unless it runs.
func (p *pair) start(s *side) {
	p.t.Helper()
	if s.exited != nil {
		select {
		case <-s.exited:
		default:
			return
		}
	}
	arguments := s.serveArguments()
	arguments[0] = "standby"
	s.stderr = &strings.Builder{}
	s.cmd = exec.Command(s.binary, append(arguments, p.flags...)...)
	s.cmd.Stderr = s.stderr
	if err := s.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	cmd, exited := s.cmd, make(chan struct{})
	s.exited = exited
	go func() {
		cmd.Wait() //nolint:errcheck // it may have been killed
		close(exited)
	}()
}

// end kills the process of a server and waits for its end.
func (s *side) end() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill() //nolint:errcheck // it may have ended
	<-s.exited
	s.cmd = nil // program.kill has nothing to do
}

func (s *side) signal(sig syscall.Signal) { _ = s.cmd.Process.Signal(sig) } // it may have ended

// client returns a client that sends each request to one of the servers.
func (p *pair) client(id int, rng *rand.Rand) *rig.Client {
	return &rig.Client{
		ID: id, HTTP: p.http, Token: token, Rec: p.rec,
		Base: func() string { return "https://" + p.sides[rng.IntN(len(p.sides))].address },
	}
}

// value returns a value that was not written before.
func (p *pair) value() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version++
	return fmt.Sprint("v", p.version)
}

const takeoverNamespace = "takeover"

// load sends random requests for a few keys until ctx ends.
func (p *pair) load(ctx context.Context, clients int, seed uint64) {
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			c := p.client(i, rng)
			for ctx.Err() == nil {
				key := fmt.Sprintf("%s/k%d", takeoverNamespace, rng.IntN(4))
				// Most requests give up soon, so that clients do not all wait for a server that is paused. Some wait until it goes on.
				limit := 300 * time.Millisecond
				if rng.IntN(5) == 0 {
					limit = 4 * lockDuration
				}
				ctx, cancel := context.WithTimeout(ctx, limit)
				var op history.Op
				switch rng.IntN(6) {
				case 0:
					op = c.Create(ctx, key, p.value(), "red")
				case 1:
					if op = c.Get(ctx, key); op.Outcome == history.Done {
						op = c.Update(ctx, key, p.value(), "red", op.Read.Revision)
					}
				case 2:
					op = c.Update(ctx, key, p.value(), "blue", 0)
				case 3:
					op = c.Delete(ctx, key, 0)
				default:
					op = c.Get(ctx, key)
				}
				cancel()
				if op.Outcome == history.Refused || op.Outcome == history.Unknown {
					time.Sleep(5 * time.Millisecond) // the standby does not listen
				}
			}
		})
	}
	running.Wait()
}

// await waits until one of the servers answers, and returns the state.
func (p *pair) await(what string) map[string]history.State {
	p.t.Helper()
	c := p.client(999, rand.New(rand.NewPCG(1, 1)))
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
		if p.sides[0].cmd != nil && c.CreateNamespace(ctx, takeoverNamespace) == nil {
			if list := c.List(ctx, takeoverNamespace, 0); list.Outcome == history.Done {
				cancel()
				return list.Items
			}
		}
		cancel()
	}
	p.t.Fatalf("no server answers after %s\n%s", what, p.logs())
	return nil
}

func (p *pair) logs() string {
	var b strings.Builder
	for i, s := range p.sides {
		fmt.Fprintf(&b, "server %d:\n%s\n", i, s.stderr)
	}
	return b.String()
}

// TestTakeover kills and pauses two servers with --backup-mode=sync, which take over from each other. All answers together are those of
// one server: nothing that was answered is lost, no answer comes from a server after another one has taken over, and revisions only rise.
func TestTakeover(t *testing.T) {
	rng := rig.Seeded(t)
	p := newPair(t, "--backup-mode", "sync")
	before := p.await("the start")
	p.rec.Take()
	var past []history.Op
	answered := 0
	for round := range rig.Rounds(4, 200) {
		ctx, cancel := context.WithCancel(t.Context())
		ended, seed := make(chan struct{}), rng.Uint64()
		go func() {
			defer close(ended)
			p.load(ctx, 8, seed)
		}()
		pause := func(most time.Duration) { time.Sleep(time.Duration(rng.Int64N(int64(most)))) }
		pause(time.Second)
		what := ""
		for range 1 + rng.IntN(2) {
			s := p.sides[rng.IntN(2)]
			switch rng.IntN(4) {
			case 0:
				what += " killed"
				s.signal(syscall.SIGKILL)
				pause(2 * lockDuration)
				<-s.exited
			case 1:
				what += " ended"
				s.signal(syscall.SIGTERM)
				pause(lockDuration)
			default:
				what += " paused"
				s.signal(syscall.SIGSTOP)
				pause(3 * lockDuration)
				s.signal(syscall.SIGCONT)
			}
			p.start(s)
		}
		pause(lockDuration)
		cancel()
		<-ended
		// What is in flight takes effect now or never.
		for _, s := range p.sides {
			s.end()
		}
		p.rec.Settle()
		for _, s := range p.sides {
			p.start(s)
		}
		after := p.await(what)
		ops := p.rec.Take()
		for _, o := range ops {
			if o.Outcome == history.Done {
				answered++
			}
		}
		if err := history.CheckLinearizable(ops, before, patience); err != nil {
			t.Fatalf("round %d,%s: %v\n%s", round, what, err, p.logs())
		}
		if err := history.CheckOrder(append(past, ops...)); err != nil {
			t.Fatalf("round %d,%s: %v\n%s", round, what, err, p.logs())
		}
		t.Logf("round %d,%s: %d requests", round, what, len(ops))
		before, past = after, ops
	}
	if answered < 100 {
		t.Errorf("only %d requests were answered", answered)
	}
}

// term returns the number of takeovers before a revision: each leaves out a thousand million revisions.
func term(revision int64) int64 { return revision / 1_000_000_000 }

// TestTakeoverLosesOnlyTheEnd kills and pauses two servers that take over from each other, without --backup-mode=sync. What is lost are the
// last changes of a server before another one took over, and none in between; and no server answers after another one has.
func TestTakeoverLosesOnlyTheEnd(t *testing.T) {
	rng := rig.Seeded(t)
	p := newPair(t)
	p.await("the start")
	var created []history.Op
	lost := 0
	for round := range rig.Rounds(2, 100) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			var running sync.WaitGroup
			for i := range 4 {
				running.Go(func() {
					c := p.client(i, rand.New(rand.NewPCG(uint64(round), uint64(i))))
					for n := 0; ctx.Err() == nil; n++ {
						key := fmt.Sprintf("%s/r%d-%d-%d", takeoverNamespace, round, i, n)
						if op := c.Create(ctx, key, "v", "red"); op.Outcome == history.Refused {
							time.Sleep(5 * time.Millisecond) // the standby does not listen
						}
					}
				})
			}
			running.Wait()
		}()
		time.Sleep(time.Second)
		s := p.sides[rng.IntN(2)]
		if rng.IntN(2) == 0 {
			s.signal(syscall.SIGKILL)
			time.Sleep(2 * lockDuration)
			<-s.exited
		} else {
			s.signal(syscall.SIGSTOP)
			time.Sleep(2 * lockDuration)
			s.signal(syscall.SIGCONT)
		}
		p.start(s)
		time.Sleep(lockDuration)
		cancel()
		<-ended
		there := p.await("the faults")
		for _, op := range p.rec.Take() {
			if op.Kind == history.Create && op.Outcome == history.Done {
				created = append(created, op)
			}
		}
		firstLost := map[int64]history.Op{}
		lost = 0
		for _, op := range created {
			if _, ok := there[op.Key]; !ok {
				lost++
				if f, ok := firstLost[term(op.Revision)]; !ok || op.Revision < f.Revision {
					firstLost[term(op.Revision)] = op
				}
			}
		}
		firstAnswer := map[int64]time.Duration{}
		for _, op := range created {
			if at, ok := firstAnswer[term(op.Revision)]; !ok || op.Return < at {
				firstAnswer[term(op.Revision)] = op.Return
			}
		}
		for _, op := range created {
			if f, ok := firstLost[term(op.Revision)]; ok && op.Revision > f.Revision && there[op.Key].Exists() {
				t.Fatalf("round %d: %v was lost, and the later %v was not\n%s", round, f, op, p.logs())
			}
			for later, at := range firstAnswer {
				if later > term(op.Revision) && op.Call > at {
					t.Fatalf("round %d: %v was answered after another server had answered\n%s", round, op, p.logs())
				}
			}
		}
		t.Logf("round %d: %d created, %d of them lost in the end", round, len(created), lost)
	}
	if len(created) < 50 {
		t.Errorf("only %d objects were created", len(created))
	}
}
