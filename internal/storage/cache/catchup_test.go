package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage"
)

// streamCounter is a store that counts the open streams of old changes.
type streamCounter struct {
	*fakeStore

	mu               sync.Mutex
	open, most, made int
}

func (s *streamCounter) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	w, err := s.fakeStore.Watch(ctx, prefix, from)
	if err != nil || prefix == Root {
		return w, err
	}
	s.add(1)
	return &countedWatcher{w, s}, nil
}

func (s *streamCounter) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
	s.most = max(s.most, s.open)
	s.made += max(n, 0)
}

func (s *streamCounter) counts() (open, most, made int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open, s.most, s.made
}

type countedWatcher struct {
	storage.Watcher
	of *streamCounter
}

func (w *countedWatcher) Close() error {
	w.of.add(-1)
	return w.Watcher.Close()
}

// countingCodec counts the values that it reads.
type countingCodec struct {
	fakeCodec
	reads *atomic.Int64
}

func (c countingCodec) Read(key string, value []byte, revision int64) (Header, error) {
	c.reads.Add(1)
	return c.fakeCodec.Read(key, value, revision)
}

// behindLog returns a cache whose log starts after a number of updates of two resources.
func behindLog(t *testing.T, updates int) (s *streamCounter, pods, others *Resource, reads *atomic.Int64) {
	t.Helper()
	s = &streamCounter{fakeStore: newFakeStore()}
	for i := range updates {
		put(t, s, fmt.Sprintf("a/p%d", i%7), fmt.Sprintf("n%d|red|%d%s", i%3, i, strings.Repeat("x", 5000)))
		commit(t, s, storage.Put(Root+"others/o", fmt.Appendf(nil, "n1|red|%d", i)))
	}
	c := newCache(t, s, nil)
	reads = new(atomic.Int64)
	config := podConfig()
	config.Codec = countingCodec{reads: reads}
	pods = c.Resource(config)
	others = c.Resource(Config{Resource: "others", Prefix: Root + "others/", Codec: fakeCodec{}})
	snapshot(t, pods, 0)
	snapshot(t, others, 0)
	reads.Store(0)
	return s, pods, others, reads
}

// each runs do for n watchers at the same time.
func each(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			if err := do(i); err != nil {
				t.Errorf("watcher %d: %v", i, err)
			}
		})
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// readOn reads a cursor until it has n events, which must be in order.
func readOn(ctx context.Context, cursor *Cursor, n int, last int64) error {
	for n > 0 {
		events, _, err := cursor.Next(ctx)
		if err != nil {
			return fmt.Errorf("%d events are missing: %w", n, err)
		}
		for _, e := range events {
			if e.Revision <= last {
				return fmt.Errorf("revision %d comes after %d", e.Revision, last)
			}
			last = e.Revision
		}
		n -= len(events)
	}
	return nil
}

// TestCatchUpStreamsAreFew checks that watchers of old revisions share few streams, use none while they do not
// read, and get all events.
func TestCatchUpStreamsAreFew(t *testing.T) {
	const updates, watchers = 600, 40
	s, pods, others, _ := behindLog(t, updates)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cursors, left, last := make([]*Cursor, watchers), make([]int, watchers), make([]int64, watchers)
	each(t, watchers, func(i int) (err error) {
		r, skip := pods, i*10 // each update changes both resources, pods first
		if i%2 == 1 {
			r = others
		}
		if cursors[i], err = r.Watch(ctx, int64(1+2*skip), Interest{}); err != nil {
			return err
		}
		events, _, err := cursors[i].Next(ctx)
		if err != nil {
			return err
		}
		left[i], last[i] = updates-skip-len(events), events[len(events)-1].Revision
		return nil
	})
	if _, most, _ := s.counts(); most > maxReaders {
		t.Errorf("%d streams were open at the same time, want %d at most", most, maxReaders)
	}
	wait.Seen(t, "the streams of watchers that stall to be closed", func() (bool, string) {
		open, _, _ := s.counts()
		return open == 0, fmt.Sprintf("%d are open", open)
	})
	each(t, watchers, func(i int) error {
		defer cursors[i].Close()
		return readOn(ctx, cursors[i], left[i], last[i])
	})
	if _, most, _ := s.counts(); most > maxReaders {
		t.Errorf("%d streams were open at the same time, want %d at most", most, maxReaders)
	}
}

// TestResumingTogether checks that many watchers that resume at about the same revision need about one stream, and that
// each change is read once.
func TestResumingTogether(t *testing.T) {
	const updates, watchers = 300, 200
	s, pods, _, reads := behindLog(t, updates)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	each(t, watchers, func(i int) error {
		skip := i % 5
		cursor, err := pods.Watch(ctx, int64(1+2*skip), Interest{})
		if err != nil {
			return err
		}
		defer cursor.Close()
		return readOn(ctx, cursor, updates-skip, 0)
	})
	_, _, made := s.counts()
	t.Logf("%d streams and %d values read for %d watchers of %d changes", made, reads.Load(), watchers, updates)
	if made > 2*maxReaders {
		t.Errorf("%d streams for %d watchers", made, watchers)
	}
	// Each change has two values. Some changes may be read again by another stream.
	if n := reads.Load(); n > 2*updates*2*maxReaders {
		t.Errorf("%d values were read", n)
	}
}

// TestCatchUpWithSelectors checks that the events of a shared stream are filtered for each watcher.
func TestCatchUpWithSelectors(t *testing.T) {
	const updates = 300
	_, pods, _, _ := behindLog(t, updates)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	each(t, 7, func(i int) error {
		cursor, err := pods.Watch(ctx, 1, Interest{Namespace: "a", Name: fmt.Sprintf("p%d", i)})
		if err != nil {
			return err
		}
		defer cursor.Close()
		return readOn(ctx, cursor, (updates+6-i)/7, 0)
	})
}

// TestCatchUpAfterFailures checks that a broken stream is opened again. If the revision was compacted, the
// watchers that need it end.
func TestCatchUpAfterFailures(t *testing.T) {
	const updates = 300
	s, pods, _, _ := behindLog(t, updates)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cursor := watch(t, pods, 1, Interest{})
	defer cursor.Close()
	events, _, err := cursor.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.breakWatches()
	if err := readOn(ctx, cursor, updates-len(events), events[len(events)-1].Revision); err != nil {
		t.Fatal(err)
	}
	late := watch(t, pods, 1, Interest{})
	defer late.Close()
	if err := s.Compact(ctx, 100); err != nil {
		t.Fatal(err)
	}
	var compacted *storage.CompactedError
	for err = nil; err == nil; {
		_, _, err = late.Next(ctx)
	}
	if !errors.As(err, &compacted) || compacted.Compacted != 100 {
		t.Errorf("error %v", err)
	}
	if _, err := pods.Watch(ctx, 1, Interest{}); !errors.As(err, &compacted) {
		t.Errorf("Watch below the compaction: %v", err)
	}
}

// TestCatchUpReaders simulates readers and cursors at given times, without streams: which cursor gets a reader, and
// which one is refused.
func TestCatchUpReaders(t *testing.T) {
	c := newCache(t, newFakeStore(), nil)
	mine, other := c.Resource(podConfig()), c.Resource(
		Config{Resource: "others", Prefix: Root + "others/", Codec: fakeCodec{}},
	)
	now := time.Now()
	for name, test := range map[string]struct {
		waited           time.Duration
		opened, served   time.Duration // times before now, of the open reader
		wanted           bool          // a cursor waits at the reader's head
		servedAny        time.Duration // time before now when any cursor was served
		sentAway, closed bool
	}{
		"the reader is busy": {waited: time.Second, opened: time.Second, wanted: true},
		"the reader is idle": {
			waited: time.Millisecond, opened: time.Second, served: time.Second, closed: true,
		},
		"its clients are about to ask":   {waited: time.Millisecond, opened: time.Second, served: time.Millisecond},
		"it has had its turn":            {waited: 3 * time.Second, opened: 3 * time.Second, wanted: true, closed: true},
		"its turn is over, nobody waits": {waited: time.Second, opened: 3 * time.Second, wanted: true},
		"no place for long": {
			waited: time.Minute, opened: 3 * time.Second, wanted: true, servedAny: time.Second, sentAway: true,
		},
		"the store does not serve anybody": {
			waited: time.Minute, opened: 3 * time.Second, wanted: true, servedAny: 2 * time.Minute, closed: true,
		},
	} {
		h := NewCatchUp(1)
		rd := &catchUpReader{
			catchUp: h, resource: other, cancel: func() {}, requested: make(chan struct{}, 1), low: 5, head: 10,
		}
		rd.openedAt, rd.servedAt, h.lastServed = now.Add(-test.opened), now.Add(-test.served), now.Add(-test.servedAny)
		h.readers = []*catchUpReader{rd}
		if test.wanted {
			h.waits = append(h.waits, &catchUpWait{resource: other, revision: 10, since: now, ready: make(chan struct{})})
		}
		w := &catchUpWait{resource: mine, revision: 3, since: now.Add(-test.waited), ready: make(chan struct{})}
		h.waits = append(h.waits, w)
		h.assignAll(now)
		if sentAway := errors.Is(w.err, errNoReader); sentAway != test.sentAway || rd.closed != test.closed {
			t.Errorf("%s: sent away: %v, the reader closed: %v", name, sentAway, rd.closed)
		}
	}
}
