package keelson

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/config"
)

// TB has the methods of testing.TB that ForTest uses.
type TB interface {
	Helper()
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// ForTest starts a server in memory, which is stopped when the test ends. change may first alter its
// configuration.
//
// The server logs its warnings and errors to the test, unless change sets Diagnostics.Log. It records the requests of
// its clients (Testing.Record); if the test fails, the last 50 of them are logged too.
func ForTest(t TB, change ...func(*config.Config)) *Server {
	t.Helper()
	return forTest(t, change, func(ctx context.Context, change ...func(*config.Config)) (*Server, error) {
		c := config.InMemory()
		for _, f := range change {
			f(&c)
		}
		return Start(ctx, c)
	})
}

// ForTest starts a server with the state of the snapshot. The server is stopped when the test ends, as with the
// function ForTest. It has the configuration of the original server, altered by change, but logs to t and records
// requests.
func (sn *Snapshot) ForTest(t TB, change ...func(*config.Config)) *Server {
	t.Helper()
	return forTest(t, change, sn.Start)
}

// forTest starts a server, and stops it when the test ends.
func forTest(
	t TB, change []func(*config.Config), start func(context.Context, ...func(*config.Config)) (*Server, error),
) *Server {
	t.Helper()
	const startTime, stopTime = 30 * time.Second, 30 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	log := &testLog{t: t}
	first := func(c *config.Config) {
		c.Testing.Record = true
		c.Diagnostics.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	s, err := start(ctx, append([]func(*config.Config){first}, change...)...)
	if err != nil {
		log.end()
		t.Fatalf("keelson: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() && s.server.Traffic() != nil {
			t.Logf("keelson: %s", lastRequests(s.Requests(Match{})))
		}
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		err := s.Stop(ctx)
		log.end()
		if err != nil {
			t.Errorf("keelson: %v", err)
		}
	})
	return s
}

// testLog writes a log to a test until the test ends. Later lines are dropped, because testing.T would panic.
type testLog struct {
	mu sync.Mutex // guards t
	t  TB         // nil after the end
}

func (l *testLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t != nil {
		l.t.Logf("keelson: %s", bytes.TrimSpace(line))
	}
	return len(line), nil
}

func (l *testLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t = nil
}

// lastRequests returns a description of the last requests, one on each line.
func lastRequests(all []Request) string {
	const most, precision = 50, 10 * time.Microsecond
	last := all[max(len(all)-most, 0):]
	var b strings.Builder
	fmt.Fprintf(&b, "the last %d of %d requests:", len(last), len(all))
	for _, r := range last {
		took := r.Duration.Round(precision).String()
		if r.Duration == 0 {
			took = "not ended"
		}
		fmt.Fprintf(&b, "\n%s %s %s %d %s %s", r.Time.Format("15:04:05.000"), r.Verb, r.Path, r.Code, took, r.UserAgent)
	}
	return b.String()
}
