package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keelson-dev/keelson/internal/storage"
)

// Tests that need an etcd server are in test/etcd.

// TestSharedReadsBeginAfterTheCall runs in a synctest bubble. A read takes so long there that all callers call get
// meanwhile.
func TestSharedReadsBeginAfterTheCall(t *testing.T) {
	synctest.Test(t, testSharedReadsBeginAfterTheCall)
}

func testSharedReadsBeginAfterTheCall(t *testing.T) {
	var committed, reads atomic.Int64
	r := sharedReads{read: func() (int64, error) {
		reads.Add(1)
		seen := committed.Load()
		time.Sleep(time.Millisecond)
		return seen, nil
	}}
	const callers, calls = 32, 50
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range calls {
				want := committed.Add(1)
				if got, err := r.get(t.Context()); err != nil || got < want {
					t.Errorf("read %d, %v after %d was committed", got, err, want)
				}
			}
		})
	}
	wg.Wait()
	if n := reads.Load(); n > callers*calls/4 {
		t.Errorf("%d reads for %d calls: they were not shared", n, callers*calls)
	}
}

func TestSharedReadsEndWithTheContext(t *testing.T) {
	block := make(chan struct{})
	r := sharedReads{read: func() (int64, error) { <-block; return 1, nil }}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.get(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(block)
}

func TestLeases(t *testing.T) {
	now := time.Unix(1000, 0)
	var granted []int64
	var full []int
	l := leases{
		byTTL: make(map[int64]*sharedLease), now: func() time.Time { return now }, maxReuse: time.Minute,
		full: func(keys int) { full = append(full, keys) },
		grant: func(_ context.Context, ttl int64) (clientv3.LeaseID, error) {
			granted = append(granted, ttl)
			return clientv3.LeaseID(len(granted)), nil
		},
	}
	take := func(ttl int64, want clientv3.LeaseID) {
		t.Helper()
		if id, err := l.take(t.Context(), ttl); err != nil || id != want {
			t.Errorf("lease %d, %v, want %d", id, err, want)
		}
	}
	take(3600, 1)
	now = now.Add(59 * time.Second)
	take(3600, 1)
	take(10, 2) // a key with another time to live
	take(3600, 1)
	now = now.Add(2 * time.Second)
	take(3600, 3)
	for range maxLeaseObjects - 1 {
		take(3600, 3)
	}
	take(3600, 4)
	l.invalidate(t.Context(), 3600, 3) // not the current lease
	take(3600, 4)
	l.invalidate(t.Context(), 3600, 4)
	take(3600, 5)
	if got := fmt.Sprint(granted); got != "[3660 11 3660 3660 3660]" {
		t.Errorf("granted %s", got)
	}
	if got := fmt.Sprint(full); got != "[3 1000 2]" {
		t.Errorf("leases of %s keys were full", got)
	}
	for ttl := range int64(200) { // the expired ones are removed
		now = now.Add(time.Minute)
		if _, err := l.take(t.Context(), ttl+1); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(l.byTTL); n > 70 {
		t.Errorf("%d times to live are kept", n)
	}
}

func TestKeys(t *testing.T) {
	end := storage.PrefixEnd
	for _, c := range []struct {
		prefix, lo, hi string
		want           span
	}{
		{"", "/a", "/b", span{"/a", "/b"}},
		{"", "", "", span{"", ""}},
		{"/kube", "/registry/pods/", "/registry/pods0", span{"/kube/pods/", "/kube/pods0"}},
		{"/kube", "/registry/", end("/registry/"), span{"/kube/", "/kube0"}},
		{"/kube", "", "", span{"/kube", "/kubf"}},
		{"/kube", "/registry/x", "", span{"/kube/x", "/kubf"}},
		{"/kube", "/a", "/b", span{"/kube", "/kube"}},
	} {
		if got := (keys{c.prefix}).span(c.lo, c.hi); got != c.want {
			t.Errorf("prefix %q, %q to %q: %+v, want %+v", c.prefix, c.lo, c.hi, got, c.want)
		}
	}
	k := keys{"/kube"}
	if got, err := k.toEtcd("/registry/pods/a/b"); err != nil || got != "/kube/pods/a/b" {
		t.Errorf("%q, %v", got, err)
	}
	if got := k.fromEtcd([]byte("/kube/pods/a/b")); got != "/registry/pods/a/b" {
		t.Errorf("%q", got)
	}
	if _, err := k.toEtcd("/elsewhere"); !errors.Is(err, errOutsideRoot) {
		t.Errorf("%v", err)
	}
}

func TestReportsProgress(t *testing.T) {
	for version, want := range map[string]bool{
		"3.3.27": false, "3.4.24": false, "3.4.25": true, "3.5.0": false, "3.5.7": false, "3.5.8": true,
		"3.5.21": true, "3.6.0": true, "3.6.0-alpha.0": true, "3.7.1": true, "4.0.0": true, "2.3.8": false, "main": true,
		"": true,
	} {
		if got := reportsProgress(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

// put returns an event that puts a key; with prev = 0 it creates the key.
func put(key string, mod, prev int64) *mvccpb.Event {
	e := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: mod, CreateRevision: mod}}
	if prev != 0 {
		e.Kv.CreateRevision = prev
		e.PrevKv = &mvccpb.KeyValue{Key: []byte(key), ModRevision: prev, CreateRevision: prev}
	}
	return e
}

func TestAssembler(t *testing.T) {
	s := &Store{}
	a := assembler{next: 10, entry: s.entry}
	for i, c := range []struct {
		fragment bool
		progress int64
		events   []*mvccpb.Event
		want     string
	}{
		{events: []*mvccpb.Event{put("a", 9, 0)}, want: "0:"}, // the watch starts one revision too early
		{events: []*mvccpb.Event{put("a", 9, 0), put("b", 10, 0)}, want: "10: b10"},
		{progress: 12, want: "12:"},
		{fragment: true, events: []*mvccpb.Event{put("a", 13, 9), put("b", 14, 10)}, want: "13: a13"},
		{progress: 20, want: "0:"}, // etcd sends no progress between fragments; if it did, it would be ignored
		{fragment: true, events: []*mvccpb.Event{put("c", 14, 0)}, want: "0:"},
		{events: []*mvccpb.Event{put("d", 14, 0), put("a", 15, 13)}, want: "15: b14 c14 d14 a15"},
		{progress: 15, want: "15:"},
	} {
		r := &pb.WatchResponse{Fragment: c.fragment, Events: c.events, Header: &pb.ResponseHeader{Revision: c.progress}}
		b, err := a.add(r)
		got := fmt.Sprintf("%d:", b.Revision)
		for _, e := range b.Events {
			got += fmt.Sprintf(" %s%d", e.Entry.Key, e.Entry.ModRevision)
		}
		if err != nil || got != c.want {
			t.Errorf("step %d: %q, %v, want %q", i, got, err, c.want)
		}
	}
}

// TestAssemblerWithoutPreviousValue checks changes without the previous value, which etcd sends when that version was
// compacted before the watch read it.
func TestAssemblerWithoutPreviousValue(t *testing.T) {
	s := &Store{}
	changed := put("a", 12, 11)
	changed.PrevKv = nil
	for _, e := range []*mvccpb.Event{
		changed, {Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: []byte("a"), ModRevision: 12}},
	} {
		a := assembler{next: 10, entry: s.entry}
		_, err := a.add(&pb.WatchResponse{Header: &pb.ResponseHeader{}, Events: []*mvccpb.Event{e}})
		var compacted *storage.CompactedError
		if !errors.As(err, &compacted) || compacted.Revision != 10 || compacted.Compacted != 12 {
			t.Errorf("%v: %v", e, err)
		}
	}
}

// TestUnreachableClusterIsReportedSoon checks that a server that waits for etcd logs why, long before it gives up.
func TestUnreachableClusterIsReportedSoon(t *testing.T) {
	const nobody = "http://127.0.0.1:1"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reported := func(r slog.Record) {
		if strings.Contains(r.Message, "no member of etcd answers") {
			cancel()
		}
	}
	s, err := Open(ctx, Options{Endpoints: []string{nobody}, DialTimeout: time.Hour, Logger: slog.New(recordHandler(reported))})
	if err == nil {
		s.Close()
	}
	if err == nil || !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("nothing was logged within a minute: %v", err)
	}
}

// recordHandler calls a function for each record of a log.
type recordHandler func(slog.Record)

func (recordHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h recordHandler) Handle(_ context.Context, r slog.Record) error { h(r); return nil }

func (h recordHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h recordHandler) WithGroup(string) slog.Handler { return h }
