package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
	"github.com/keelson-dev/keelson/test/rig"
)

// signal sends a signal to a process that the test has started.
func (c *child) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%v to a %s: %v", s, c.role, err)
	}
}

// bounded returns a context for one request that has to be answered in time.
func bounded(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), patience)
}

// TestPausedMember pauses the process of one of three members: its connections stay open, and nothing answers.
// Consistent reads must succeed all the same, watches must continue, leases must be granted, and commits must end.
func TestPausedMember(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 3, 0, chaosToken)
	var endpoints []string
	for _, m := range p.members {
		endpoints = append(endpoints, m.Client)
	}
	s, err := etcd.Open(t.Context(), etcd.Options{Endpoints: endpoints, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	paused := 1 // all members in the long form, so that the leader is among them
	if long() {
		paused = 3
	}
	for i := range paused {
		start, err := s.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w, err := s.Watch(t.Context(), "/k/", start+1)
		if err != nil {
			t.Fatal(err)
		}
		member := p.running.members[i]
		member.signal(t, syscall.SIGSTOP)
		reached := through(t, s, w, start, fmt.Sprintf("while %s is paused", p.members[i].Name))
		member.signal(t, syscall.SIGCONT)
		through(t, s, w, reached, fmt.Sprintf("after %s was paused", p.members[i].Name))
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

// through carries out several consistent reads, which must succeed, several commits, which must end but may fail, and a
// watch, which has reached the revision at and must get as far as the reads. It returns the revision that the watch has
// reached.
func through(t *testing.T, s *etcd.Store, w storage.Watcher, at int64, when string) int64 {
	t.Helper()
	const each = 6
	ctx, cancel := bounded(t)
	defer cancel()
	var wg sync.WaitGroup
	for i := range each {
		wg.Go(func() {
			if _, err := s.Revision(ctx); err != nil {
				t.Errorf("%s: a consistent read of the revision: %v", when, err)
			}
		})
		wg.Go(func() {
			if _, err := s.Range(ctx, storage.RangeRequest{Start: "/k/", End: "/k0"}); err != nil {
				t.Errorf("%s: a consistent read of a range: %v", when, err)
			}
		})
		wg.Go(func() {
			_, err := s.Commit(
				ctx, storage.Txn{Ops: []storage.Op{{Key: fmt.Sprint("/k/", i), Value: []byte(when), TTL: int64(1000 + i)}}},
			)
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
				t.Errorf("%s: a commit does not end", when)
			}
		})
	}
	wg.Wait()
	want, err := s.Revision(ctx)
	if err != nil {
		t.Fatalf("%s: a consistent read of the revision: %v", when, err)
	}
	for at < want {
		b, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("%s: the watch is at revision %d, and does not come to %d: %v", when, at, want, err)
		}
		at = b.Revision
	}
	return at
}

// TestPausedReplica pauses the process of one of two replicas while the other one writes. When the paused replica
// continues, its responses to earlier and later requests must include every write that was acknowledged before the
// request was sent, and its watches must not miss an event.
func TestPausedReplica(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 1, 2, chaosToken)
	transport := &http.Transport{
		//nolint:gosec // the server runs on this machine
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}
	defer transport.CloseIdleConnections()
	s := rig.NewScenario(t, rig.Seeded(t), &http.Client{Transport: transport})
	s.Token = chaosToken
	s.Gentle = true // because the replicas keep running between the rounds
	s.At(p.urls()[0], p.urls()...)
	s.Begin(true)
	for s.Round = range rig.Rounds(3, 40) {
		ctx, cancel := context.WithCancel(t.Context())
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			s.Load(ctx, 4, 4)
		}()
		pause := func() { time.Sleep(time.Duration(s.Rng.Int64N(int64(400 * time.Millisecond)))) }
		pause()
		p.running.replicas[1].signal(t, syscall.SIGSTOP)
		pause()
		p.running.replicas[1].signal(t, syscall.SIGCONT)
		pause()
		cancel()
		<-loaded
		s.Rec.Settle()
		if err := s.Check(); err != nil {
			t.Fatalf("round %d: %v", s.Round, err)
		}
	}
	s.Round++
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
}

// TestPartition has two replicas whose connections to the three members are cut, kept back in one or both directions,
// or slowed down, at random, while clients work. The whole history is checked.
func TestPartition(t *testing.T) {
	t.Parallel()
	c := start(t, 3, nil)
	const replicas = 2
	ways := make([][]*link, replicas)
	for r := range ways {
		for _, m := range c.members {
			ways[r] = append(ways[r], newLink(t, m.client.Host))
		}
	}
	all := slices.Concat(ways...)
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	defer transport.CloseIdleConnections()
	s := rig.NewScenario(t, rig.Seeded(t), &http.Client{Transport: transport})
	var closers []func()
	down := func() {
		for _, l := range all {
			l.be(cutOff)
		}
		for _, end := range closers {
			end()
		}
		closers = nil
	}
	up := func() {
		var urls []string
		for _, list := range ways {
			var endpoints []string
			for _, l := range list {
				l.be(open)
				endpoints = append(endpoints, l.url())
			}
			store, err := etcd.Open(t.Context(), etcd.Options{Endpoints: endpoints, Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			server, err := rig.Serve(rig.Options{Store: store})
			if err != nil {
				t.Fatal(err)
			}
			closers = append(closers, server.Close, func() { _ = store.Close() }) // its connections are cut
			urls = append(urls, server.URL)
		}
		s.At(urls[0], urls...)
	}
	up()
	defer down()
	s.Begin(true)
	faults := map[state]int{}
	for s.Round = range rig.Rounds(5, 100) {
		ctx, cancel := context.WithCancel(t.Context())
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			s.Load(ctx, 4, 3)
		}()
		for range 1 + s.Rng.IntN(3) {
			pause := func(most time.Duration) { time.Sleep(time.Duration(s.Rng.Int64N(int64(most)))) }
			pause(200 * time.Millisecond)
			l, fault := all[s.Rng.IntN(len(all))], faulty[s.Rng.IntN(len(faulty))]
			faults[fault]++
			l.be(fault)
			pause(600 * time.Millisecond)
			if s.Rng.IntN(2) == 0 {
				l.be(open)
			}
		}
		cancel()
		<-loaded
		down()
		settle(t, c.endpoints())
		s.Rec.Settle()
		up()
		if err := s.Check(); err != nil {
			t.Fatalf("round %d: %v", s.Round, err)
		}
	}
	s.Round++
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	t.Logf("faults: %v", faults)
}

// TestHeldUpMember has a connection to one member that takes requests but brings no responses, or takes no requests,
// as if a network dropped packets in one direction. Consistent reads and watches must continue through the other
// members.
func TestHeldUpMember(t *testing.T) {
	t.Parallel()
	c := start(t, 3, nil)
	var links []*link
	var endpoints []string
	for _, m := range c.members {
		l := newLink(t, m.client.Host)
		links, endpoints = append(links, l), append(endpoints, l.url())
	}
	s, err := etcd.Open(t.Context(), etcd.Options{Endpoints: endpoints, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	at, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Watch(t.Context(), "/k/", at+1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	held := []state{answersHeld, requestsHeld, bothHeld}
	if !long() {
		held = held[:1]
	}
	for i, state := range held {
		links[i].be(state)
		at = through(t, s, w, at, fmt.Sprintf("%v to %s", state, c.members[i].name))
		links[i].be(open)
	}
}

// TestWentBack checks that a store fails permanently, and says so, when the data of its cluster is replaced by an
// earlier backup: changes that the process has seen did not happen there.
func TestWentBack(t *testing.T) {
	t.Parallel()
	c := start(t, 1, nil)
	failed := make(chan error, 10)
	s := c.open(t, etcd.Options{OnFailure: func(err error) { failed <- err }})
	for i := range 20 {
		ctx, cancel := bounded(t)
		_, err := s.Commit(ctx, put("/k", fmt.Sprint(i)))
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	c.stop(0)
	if err := os.RemoveAll(c.dir + "/" + c.members[0].name); err != nil {
		t.Fatal(err)
	}
	c.launchNew(0)
	c.awaitReady(0)
	within(t, "the store notices", func() error {
		ctx, cancel := bounded(t)
		defer cancel()
		_, err := s.Revision(ctx)
		if errors.Is(err, storage.ErrFailed) {
			return nil
		}
		return fmt.Errorf("reading the revision: %v", err)
	})
	if err := <-failed; !errors.Is(err, storage.ErrFailed) || len(failed) != 0 {
		t.Errorf("%v, and %d more", err, len(failed))
	}
	// It still fails when the cluster has reached the old revision again.
	other := c.open(t, etcd.Options{})
	for i := range 40 {
		ctx, cancel := bounded(t)
		_, err := other.Commit(ctx, put("/k", fmt.Sprint(i)))
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Revision(t.Context()); !errors.Is(err, storage.ErrFailed) {
		t.Errorf("later: %v", err)
	}
}
