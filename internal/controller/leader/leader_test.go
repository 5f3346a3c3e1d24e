package leader

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/client/clienttest"
	"github.com/keelson-dev/keelson/internal/controller/gate"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

var quick = timing{lease: time.Second, valid: 700 * time.Millisecond, retry: 50 * time.Millisecond, attempt: 500 * time.Millisecond}

// server is a server in an election.
type server struct {
	*Leader
	cancel context.CancelFunc
	done   chan struct{}
}

func start(t *testing.T, api *clienttest.API, run func(*Leader, context.Context)) *server {
	s := &server{Leader: New(api.Client, "host", slog.New(slog.DiscardHandler)), done: make(chan struct{})}
	s.timing = quick
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	go func() {
		defer close(s.done)
		run(s.Leader, ctx)
	}()
	t.Cleanup(s.end)
	return s
}

func (s *server) end() {
	s.cancel()
	<-s.done
}

func (s *server) is() bool { return strings.Contains(s.Remark(), "this server does") }

// TestOneLeads ends the leader in each round, with or without releasing the Lease as when it is killed, and starts another server. There is
// always one leader soon, and never more than one. What was killed leads until its time is up.
func TestOneLeads(t *testing.T) {
	api := clienttest.New(t, "", "test")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var leaders atomic.Int32
	count := func() func(bool) {
		led := false
		return func(leads bool) {
			switch {
			case leads && !led:
				if n := leaders.Add(1); n > 1 {
					t.Errorf("%d servers lead at the same time", n)
				}
			case !leads && led:
				leaders.Add(-1)
			}
			led = leads
		}
	}
	var servers []*server
	add := func() {
		run := (*Leader).Run
		if rng.IntN(2) == 0 {
			run = (*Leader).elect // as if it was killed when its context ends
		}
		servers = append(servers, start(t, api, func(l *Leader, ctx context.Context) {
			l.set = append(l.set, count())
			run(l, ctx)
		}))
	}
	for range 3 {
		add()
	}
	for range 8 {
		wait.Until(t, "one of the servers leads", func() bool { return slices.ContainsFunc(servers, (*server).is) })
		leading := slices.IndexFunc(servers, (*server).is)
		servers[leading].end()
		servers = slices.Delete(servers, leading, leading+1)
		add()
	}
}

// TestLease checks what other programs read in the Lease, and that a stopping leader releases it.
func TestLease(t *testing.T) {
	api := clienttest.New(t, "", "test")
	read := func() *coordinationv1.LeaseSpec {
		obj, err := api.Get(t.Context(), client.Ref{
			Resource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Namespace: metav1.NamespaceSystem, Name: "keelson",
		})
		if err != nil {
			t.Fatal(err)
		}
		return &obj.(*coordinationv1.Lease).Spec
	}
	for transitions := range int32(3) {
		s := start(t, api, (*Leader).Run)
		wait.Until(t, "the server leads", s.is)
		first := read()
		if *first.HolderIdentity != s.id || !strings.HasPrefix(s.id, "host_") || *first.LeaseDurationSeconds != 1 ||
			*first.LeaseTransitions != transitions || time.Since(first.AcquireTime.Time) > time.Minute {
			t.Errorf("after %d transitions the lease is %v", transitions, first)
		}
		wait.Until(t, "the server renews the lease for longer than one renewal is valid", func() bool {
			return read().RenewTime.Sub(first.RenewTime.Time) > quick.valid
		})
		if next := read(); !s.is() || !next.AcquireTime.Equal(first.AcquireTime) || *next.LeaseTransitions != transitions {
			t.Errorf("a renewal has made %v of %v", next, first)
		}
		s.end()
		if *read().HolderIdentity != "" || s.is() {
			t.Errorf("after the end the holder is %q", *read().HolderIdentity)
		}
	}
}

// TestLeaseOfAnother checks that the duration which another holder has written counts, from when it was seen.
func TestLeaseOfAnother(t *testing.T) {
	api := clienttest.New(t, "", "test")
	other := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("other"), LeaseDurationSeconds: new(int32(2)), RenewTime: &metav1.MicroTime{},
	}}
	other.Namespace, other.Name = metav1.NamespaceSystem, "keelson"
	_, err := api.Create(t.Context(), client.CreateRequest{
		Resource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Object: other,
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s := start(t, api, (*Leader).Run)
	wait.Until(t, "the server knows the other one", func() bool { return strings.Contains(s.Remark(), "another server") })
	wait.Until(t, "the server leads", s.is)
	if after := time.Since(began); after < 2*time.Second {
		t.Errorf("it leads after %v", after)
	}
}

// TestEndWithoutRenewal checks that work of a leader ends if its Lease is not renewed, also while an attempt hangs.
func TestEndWithoutRenewal(t *testing.T) {
	l := New(clienttest.New(t, "", "test").Client, "host", slog.New(slog.DiscardHandler))
	l.timing = quick
	var g gate.Gate
	l.Guard(&g)
	l.renewed(time.Now())
	done := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		done <- g.While(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			close(ended)
			return nil
		})
	}()
	wait.Receive(t, "the end of the work", ended)
	if l.Remark() != "leader: not known" {
		t.Error("the server still leads")
	}
	cancel()
	if err := wait.Receive(t, "the end of While", done); err != nil {
		t.Error(err)
	}
}
