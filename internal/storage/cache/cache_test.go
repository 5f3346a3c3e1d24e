package cache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

const podPrefix = Root + "pods/"

func podConfig() Config {
	return Config{Resource: "pods", Prefix: podPrefix, Namespaced: true, Indexes: []string{"node"}, Codec: fakeCodec{}}
}

// eachStore runs a test with the fake store and with the embedded one.
func eachStore(t *testing.T, test func(t *testing.T, s storage.Store)) {
	t.Run("fake", func(t *testing.T) { test(t, newFakeStore()) })
	t.Run("embedded", func(t *testing.T) {
		s, err := embedded.Open(embedded.Options{InMemory: true, HistoryWindow: -1, RingBytes: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		test(t, s)
	})
}

func newCache(t testing.TB, s storage.Store, change func(*Options)) *Cache {
	o := Options{Store: s}
	if change != nil {
		change(&o)
	}
	c := New(o)
	t.Cleanup(c.Close)
	return c
}

func put(t testing.TB, s storage.Store, key, value string) int64 {
	t.Helper()
	return commit(t, s, storage.Put(podPrefix+key, []byte(value)))
}

func remove(t testing.TB, s storage.Store, key string) int64 {
	t.Helper()
	return commit(t, s, storage.Delete(podPrefix+key))
}

func commit(t testing.TB, s storage.Store, ops ...storage.Op) int64 {
	t.Helper()
	revision, err := s.Commit(t.Context(), storage.Txn{Ops: ops})
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func snapshot(t testing.TB, r *Resource, min int64) Snapshot {
	t.Helper()
	s, err := r.Snapshot(t.Context(), min)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// showLatest returns the objects of a view of the latest state as lines, and its revision.
func showLatest(t testing.TB, r *Resource) (lines []string, revision int64) {
	t.Helper()
	v, err := r.View(t.Context(), Latest)
	if err == nil {
		err = v.Ascend(t.Context(), "", "", 0, func(o *Object) bool {
			lines = append(lines, showObject(o))
			return true
		})
	}
	if err != nil {
		t.Error(err)
		return nil, 1
	}
	return lines, v.Revision()
}

// settle waits until no load and no release of dropped objects is in progress.
func settle(t testing.TB, r *Resource) {
	t.Helper()
	wait.Until(t, "no load and no drop is under way", func() bool {
		r.write.Lock()
		defer r.write.Unlock()
		return r.loading == nil && r.releasing.Load() == 0
	})
}

// showAt returns the objects of a view of a revision.
func showAt(ctx context.Context, r *Resource, revision int64) (lines []string, err error) {
	v, err := r.ViewAt(ctx, revision)
	if err != nil {
		return nil, err
	}
	err = v.Ascend(ctx, "", "", 0, func(o *Object) bool {
		lines = append(lines, showObject(o))
		return true
	})
	if err == nil && v.Revision() != revision {
		err = fmt.Errorf("a view at %d of what was at %d", v.Revision(), revision)
	}
	return lines, err
}

func watch(t testing.TB, r *Resource, from int64, in Interest) *Cursor {
	t.Helper()
	c, err := r.Watch(t.Context(), from, in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// describe returns an event as a line, by which two runs are compared.
func describe(e *Event) string {
	show := func(o *Object) string {
		if o == nil {
			return "-"
		}
		return o.Key + "=" + string(o.Data)
	}
	return fmt.Sprintf("%d %s <- %s", e.Revision, show(e.Object), show(e.Prev))
}

func show(s Snapshot) (lines []string) {
	s.Ascend("", "", func(o *Object) bool {
		lines = append(lines, showObject(o))
		return true
	})
	return lines
}

func showObject(o *Object) string { return fmt.Sprintf("%s@%d=%s", o.Key, o.CreateRevision, o.Data) }

// record has the changes of the store, from a watch of the store itself.
type record struct{ events []storage.Event }

func readRecord(t *testing.T, s storage.Store, through int64) *record {
	t.Helper()
	w, err := s.Watch(t.Context(), podPrefix, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var rec record
	for at := int64(0); at < through; {
		b, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rec.events = append(rec.events, b.Events...)
		at = b.Revision
	}
	return &rec
}

// seenBy lists the events in (from, through] that a watcher with this interest must have received.
func (rec *record) seenBy(from, through int64, in Interest) (lines []string) {
	for _, e := range rec.events {
		if r := e.Entry.ModRevision; r <= from || r > through {
			continue
		}
		if !e.Deleted && wants(in, e.Entry) || e.Prev.ModRevision != 0 && wants(in, e.Prev) {
			show := func(e storage.Entry) string {
				return fmt.Sprintf("%s=%d:%s", strings.TrimPrefix(e.Key, podPrefix), e.ModRevision, e.Value)
			}
			line := fmt.Sprint(e.Entry.ModRevision, " ")
			if e.Deleted {
				line += "- <- "
			} else {
				line += show(e.Entry) + " <- "
			}
			if e.Prev.ModRevision == 0 {
				line += "-"
			} else {
				line += show(e.Prev)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func wants(in Interest, e storage.Entry) bool {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(e.Key, podPrefix), "/")
	node, _, _ := strings.Cut(string(e.Value), "|")
	return (in.Namespace == "" || in.Namespace == namespace) && (in.Name == "" || in.Name == name) &&
		(in.Index == "" || in.Value == node)
}

// state lists the objects that a snapshot at a revision must contain.
func (rec *record) state(revision int64) (lines []string) {
	now := make(map[string]string)
	for _, e := range rec.events {
		if e.Entry.ModRevision > revision {
			break
		}
		key := strings.TrimPrefix(e.Entry.Key, podPrefix)
		delete(now, key)
		if !e.Deleted {
			now[key] = fmt.Sprintf("%s@%d=%d:%s", key, e.Entry.CreateRevision, e.Entry.ModRevision, e.Entry.Value)
		}
	}
	for _, line := range now {
		lines = append(lines, line)
	}
	slices.SortFunc(lines, func(a, b string) int {
		ka, _, _ := strings.Cut(a, "@")
		kb, _, _ := strings.Cut(b, "@")
		return strings.Compare(ka, kb)
	})
	return lines
}

// TestConcurrentReadersAndWatchers runs writers, readers and watchers at the same time. Afterwards all results of
// the readers and watchers are compared with the changes of the store. A small window makes cursors catch up from
// the store.
func TestConcurrentReadersAndWatchers(t *testing.T) {
	for name, memory := range memories {
		t.Run(name, func(t *testing.T) { everybodySeesWhatHappened(t, memory) })
	}
}

// memories are configurations with all objects in memory, with none in memory, and with frequent changes between
// the two.
var memories = map[string]Memory{
	"held":     {},
	"stored":   {SmallObjects: -1, UnreadBytes: -1, LoadAfter: math.Inf(1)},
	"restless": {SmallObjects: -1, UnreadBytes: -1, HalfLife: time.Millisecond},
}

func everybodySeesWhatHappened(t *testing.T, memory Memory) {
	eachStore(t, func(t *testing.T, s storage.Store) {
		c := newCache(t, s, func(o *Options) {
			o.WindowBytes = 64 << 10
			o.EncodingBudget = 20_000
			o.IdleDrop = time.Hour
			o.Memory = memory
		})
		r := c.Resource(podConfig())
		for i := range 100 {
			put(t, s, fmt.Sprintf("ns%d/p%d", i%3, i), "n1|red|before")
		}
		_, first := showLatest(t, r)

		const writes = 700
		var writers, others sync.WaitGroup
		for w := range 3 {
			writers.Go(func() {
				random := rand.New(rand.NewPCG(uint64(w), 4))
				for i := range writes {
					var ops []storage.Op
					for n := range 1 + random.IntN(3) {
						key := fmt.Sprintf("%sns%d/p%d", podPrefix, w, n*40+random.IntN(40))
						if random.IntN(4) == 0 {
							ops = append(ops, storage.Delete(key))
						} else {
							ops = append(ops, storage.Put(key, fmt.Appendf(nil, "n%d|red|%d", random.IntN(5), i)))
						}
					}
					if i%50 == 0 {
						ops = append(ops, storage.Put(fmt.Sprintf("%snodes/n%d-%d", Root, w, i), []byte("|")))
					}
					revision := commit(t, s, ops...)
					if i%10 == 0 {
						r.AddEncoding(strings.TrimPrefix(ops[0].Key, podPrefix), revision, 1, []byte("offered"))
						// A consistent read sees the write.
						now, err := c.Current(t.Context())
						if err != nil || now < revision {
							t.Errorf("Current = %d, %v after %d", now, err, revision)
						}
						min := now
						if i%20 == 0 {
							min = Latest
						}
						view, err := r.View(t.Context(), min)
						if err != nil {
							t.Error(err)
							return
						}
						o, ok, err := view.Get(t.Context(), strings.TrimPrefix(ops[0].Key, podPrefix))
						if ops[0].Delete && err == nil {
							continue
						}
						if err != nil || view.Revision() < now || !ok || o.Revision != revision {
							t.Errorf("a view at %d has %v for what was written at %d, %v", view.Revision(), o, revision, err)
						}
					}
				}
			})
		}
		type seen struct {
			from  int64
			in    Interest
			lines []string
			upTo  int64
		}
		var all []*seen
		var mu sync.Mutex
		finished, finish := context.WithCancel(t.Context())
		interests := []Interest{
			{}, {}, {Namespace: "ns1"}, {Index: "node", Value: "n2"}, {Namespace: "ns0", Name: "p7"}, {Name: "p41"},
			{Namespace: "ns2", Index: "node", Value: "n4"}, {Index: "node", Value: "nowhere"},
			{Namespace: "ns1", Name: "p1", Index: "node", Value: "n1"},
		}
		follow := func(from int64, in Interest, slow bool) {
			w := &seen{from: from, in: in, upTo: from}
			mu.Lock()
			all = append(all, w)
			mu.Unlock()
			cursor, err := r.Watch(t.Context(), from, in)
			if err != nil {
				t.Error(err)
				return
			}
			defer cursor.Close()
			if slow {
				<-finished.Done()
			}
			for {
				if over := finished.Err() != nil; over && cursor.Revision() >= c.Applied() {
					break
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				events, revision, err := cursor.Next(ctx)
				cancel()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%+v: %v", in, err)
					return
				}
				if revision < w.upTo {
					t.Errorf("%+v: revision went from %d to %d", in, w.upTo, revision)
				}
				w.upTo = revision
				for _, e := range events {
					w.lines = append(w.lines, describe(e))
					if e.Revision > revision {
						t.Errorf("%+v: event %d above %d", in, e.Revision, revision)
					}
					if o := e.Object; o != nil {
						encoding, err := r.Encoded(o, 2, func() ([]byte, error) { return append([]byte("encoding of "), o.Data...), nil })
						if err != nil || string(encoding) != "encoding of "+string(o.Data) {
							t.Errorf("encoding %q of %q, %v", encoding, o.Data, err)
						}
					}
					if p := e.Prev; p != nil {
						at, err := e.PrevAt()
						if err != nil || at.Revision != e.Revision || !strings.HasPrefix(string(at.Data), fmt.Sprint(e.Revision, ":")) {
							t.Errorf("PrevAt of %s: %v, %v", describe(e), at, err)
							continue
						}
						if _, err := r.Encoded(at, 2, func() ([]byte, error) { return at.Data, nil }); err != nil {
							t.Error(err)
						}
					}
				}
			}
			w.upTo = cursor.Revision()
		}
		for i, in := range interests {
			others.Go(func() { follow(first, in, false) })
			others.Go(func() { follow(1, in, i%2 == 0) })
			others.Go(func() { follow(first, in, true) })
		}
		// These watchers start, end and resume.
		for i := range 3 {
			others.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 5))
				for finished.Err() == nil {
					from := c.Applied() - random.Int64N(200)
					cursor, err := r.Watch(t.Context(), max(from, 1), interests[random.IntN(len(interests))])
					if err != nil {
						t.Error(err)
						return
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					_, _, _ = cursor.Next(ctx)
					cancel()
					cursor.Close()
				}
			})
		}
		// These readers read the present and the past.
		type shown struct {
			revision int64
			lines    []string
		}
		var shots []shown
		for i := range 2 {
			others.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 6))
				for finished.Err() == nil {
					lines, revision := showLatest(t, r)
					one := shown{revision, lines}
					at := max(1, revision-random.Int64N(1500))
					old, err := showAt(t.Context(), r, at)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if len(shots) < 2000 {
						shots = append(shots, one, shown{at, old})
					}
					mu.Unlock()
					if c.Await(finished, revision+50) != nil { // leaves time to the writers
						return
					}
				}
			})
		}
		writers.Wait()
		last, _ := c.Current(t.Context())
		if err := c.Await(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		finish()
		others.Wait()

		rec := readRecord(t, s, last)
		for _, w := range all {
			if w.upTo < last {
				t.Errorf("%+v from %d: complete up to %d of %d", w.in, w.from, w.upTo, last)
			}
			if want := rec.seenBy(w.from, last, w.in); !slices.Equal(w.lines, want) {
				t.Errorf("%+v from %d: %d events, want %d%s", w.in, w.from, len(w.lines), len(want), difference(w.lines, want))
			}
		}
		for _, one := range shots {
			if want := rec.state(one.revision); !slices.Equal(one.lines, want) {
				t.Fatalf(
					"snapshot at %d: %d objects, want %d%s", one.revision, len(one.lines), len(want), difference(one.lines, want),
				)
			}
		}
		settle(t, r)
		checkEncodings(t, c)
		r.usage.used.Store(false)
		r.drop()
		if st := r.Stats(); st.Followed || st.Cursors != 0 || st.Interests != 0 {
			t.Errorf("after all left: %+v", st)
		}
		if n := c.Usage().Encodings; n != 0 {
			t.Errorf("%d bytes of encodings of nothing", n)
		}
	})
}

func difference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			g, w := "nothing", "nothing"
			if i < len(got) {
				g = got[i]
			}
			if i < len(want) {
				w = want[i]
			}
			return fmt.Sprintf("; number %d is %s, want %s", i, g, w)
		}
	}
	return ""
}

// checkEncodings checks that the budget is charged exactly the size of the cached encodings.
func checkEncodings(t *testing.T, c *Cache) {
	t.Helper()
	objects := make(map[*Object]bool)
	for _, r := range c.all() {
		st := r.published.state.Load()
		if st == nil {
			continue
		}
		st.objects.All().Ascend("", "", func(o *Object) bool { objects[o] = true; return true })
		for p := r.published.log.First(); p < r.published.log.Next(); p++ {
			e := r.published.log.Get(p)
			for _, o := range []*Object{e.Object, e.Prev, e.prevAt.Load()} {
				if o != nil {
					objects[o] = true
				}
			}
		}
	}
	var total int64
	for o := range objects {
		if k := o.attached.Load(); k != nil {
			total += encodingsSize(k.encodings.Load())
		}
	}
	if got := c.Usage().Encodings; got != total {
		t.Errorf("encodings account for %d bytes, there are %d", got, total)
	}
	if c.Usage().Encodings > c.encodings.limit+1000 {
		t.Errorf("%d bytes of encodings, limit %d", c.Usage().Encodings, c.encodings.limit)
	}
}

func TestEventOfNoLongerMatchingObject(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage.Store) {
		c := newCache(t, s, nil)
		r := c.Resource(podConfig())
		r0 := put(t, s, "a/p", "n1|red|x")
		cursor := watch(t, r, r0, Interest{Index: "node", Value: "n1"})
		r1 := put(t, s, "a/p", "n2|red|x")
		put(t, s, "a/p", "n3|red|x")
		events, _, err := cursor.Next(t.Context())
		if err != nil || len(events) != 1 || events[0].Revision != r1 {
			t.Fatalf("%v, %v", events, err)
		}
		at, err := events[0].PrevAt()
		again, _ := events[0].PrevAt()
		if err != nil || string(at.Data) != fmt.Sprintf("%d:n1|red|x", r1) || again != at {
			t.Fatalf("%v, %v", at, err)
		}
	})
}

// TestIdleCursorStaysCurrent checks that a cursor without matching events has the revision of the end of the log,
// even if events were removed from the log.
func TestIdleCursorStaysCurrent(t *testing.T) {
	s := newFakeStore()
	c := newCache(t, s, func(o *Options) { o.WindowBytes = 1 })
	r := c.Resource(podConfig())
	idle := watch(t, r, snapshot(t, r, 0).Revision(), Interest{Index: "node", Value: "n9"})
	busy := watch(t, r, snapshot(t, r, 0).Revision(), Interest{Index: "node", Value: "n1"})
	var last int64
	for i := range 900 {
		last = put(t, s, fmt.Sprintf("a/p%d", i%7), "n1|red|x")
	}
	snapshot(t, r, last)
	if got := idle.Revision(); got != last {
		t.Errorf("idle cursor at %d, want %d", got, last)
	}
	if got := busy.Revision(); got >= last {
		t.Errorf("a cursor with events to return is at %d", got)
	}
	if err := s.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a/p1", "n9|red|x")
	if events, _, err := idle.Next(t.Context()); err != nil || len(events) != 1 || idle.behind {
		t.Errorf("%d events, %v", len(events), err)
	}
	var compacted *storage.CompactedError
	for {
		if _, _, err := busy.Next(t.Context()); err != nil {
			if !errors.As(err, &compacted) {
				t.Errorf("a cursor below the compaction: %v", err)
			}
			break
		}
	}
	if _, err := r.Watch(t.Context(), 2, Interest{}); !errors.As(err, &compacted) {
		t.Errorf("Watch below the compaction: %v", err)
	}
	if _, err := r.ViewAt(t.Context(), 2); !errors.As(err, &compacted) {
		t.Errorf("ViewAt below the compaction: %v", err)
	}
}

func TestWaiting(t *testing.T) {
	s := newFakeStore()
	c := newCache(t, s, nil)
	r := c.Resource(podConfig())
	revision := put(t, s, "a/p", "n1|red|x")
	snapshot(t, r, revision)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	var future *storage.FutureRevisionError
	if _, err := r.Snapshot(ctx, revision+1); !errors.As(err, &future) || future.Current != revision {
		t.Errorf("Snapshot of the future: %v", err)
	}
	if _, err := r.ViewAt(ctx, revision+1); !errors.As(err, &future) {
		t.Errorf("ViewAt of the future: %v", err)
	}

	s.hold(true)
	revision = put(t, s, "a/p", "n1|red|y")
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := r.Snapshot(ctx, revision); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &future) {
		t.Errorf("Snapshot of what is not applied yet: %v", err)
	}
	time.AfterFunc(time.Millisecond, func() { s.hold(false) })
	if snap := snapshot(t, r, revision); snap.Revision() < revision {
		t.Errorf("snapshot at %d, asked for %d", snap.Revision(), revision)
	}

	cursor := watch(t, r, revision, Interest{})
	tick := make(chan time.Time, 1)
	tick <- time.Now()
	if events, at, err := cursor.NextOr(t.Context(), tick); err != nil || len(events) != 0 || at != revision {
		t.Errorf("tick: %v at %d, %v", events, at, err)
	}
	c.feed.waiters.mu.Lock()
	defer c.feed.waiters.mu.Unlock()
	if len(c.feed.waiters.list) != 0 {
		t.Errorf("%d waiters left", len(c.feed.waiters.list))
	}
}

// TestChangesDuringLoad checks that events that arrive during a load are neither lost nor applied twice.
func TestChangesDuringLoad(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage.Store) {
		for i := range 1500 {
			put(t, s, fmt.Sprintf("a/p%d", i), "n1|red|x")
		}
		c := newCache(t, s, nil)
		r := c.Resource(podConfig())
		var writer sync.WaitGroup
		stop, begun := make(chan struct{}), make(chan struct{})
		var last int64
		writer.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if i == 1 {
					close(begun)
				}
				last = put(t, s, fmt.Sprintf("a/p%d", i%2000), fmt.Sprintf("n2|red|%d", i))
			}
		})
		wait.Receive(t, "the first write", begun)
		var revisions []int64
		var states [][]string
		for range 10 {
			snap := snapshot(t, r, 0)
			revisions, states = append(revisions, snap.Revision()), append(states, show(snap))
			r.usage.used.Store(false)
			r.drop()
		}
		close(stop)
		writer.Wait()
		rec := readRecord(t, s, last)
		for i, at := range revisions {
			if want := rec.state(at); !slices.Equal(states[i], want) {
				t.Fatalf("loaded at %d: %d objects, want %d%s", at, len(states[i]), len(want), difference(states[i], want))
			}
		}
		if n := r.Stats().Loads; n != 10 {
			t.Errorf("%d loads", n)
		}
	})
}

// TestRelist checks that, after the store has compacted changes that the feed had not received, cursors get the
// difference as events.
func TestRelist(t *testing.T) {
	s := newFakeStore()
	c := newCache(t, s, nil)
	r := c.Resource(podConfig())
	for i := range 20 {
		put(t, s, fmt.Sprintf("a/p%d", i), "n1|red|x")
	}
	now, _ := c.Current(t.Context())
	before := snapshot(t, r, now)
	all := watch(t, r, now, Interest{})
	node := watch(t, r, now, Interest{Index: "node", Value: "n1"})

	s.hold(true)
	remove(t, s, "a/p0")
	put(t, s, "a/p1", "n2|red|y")
	put(t, s, "a/p1", "n3|red|z")
	middle := put(t, s, "a/p2", "n1|red|y")
	remove(t, s, "a/p3")
	put(t, s, "a/p3", "n1|red|new")
	put(t, s, "a/q", "n1|red|new")
	last := remove(t, s, "a/p4")
	if err := s.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	s.hold(false)

	state := make(map[string]*Object)
	before.Ascend("", "", func(o *Object) bool { state[o.Key] = o; return true })
	revision := now
	for all.Revision() < last {
		events, _, err := all.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Revision < revision || e.Revision <= now {
				t.Errorf("event at %d after %d", e.Revision, revision)
			}
			revision = e.Revision
			if e.Prev != state[e.latest().Key] {
				t.Errorf("%s: previous is not what was seen before", describe(e))
			}
			if delete(state, e.latest().Key); e.Object != nil {
				state[e.Object.Key] = e.Object
			}
		}
	}
	after := snapshot(t, r, last)
	want := make(map[string]*Object)
	after.Ascend("", "", func(o *Object) bool { want[o.Key] = o; return true })
	if fmt.Sprint(state) != fmt.Sprint(want) {
		t.Errorf("events lead to %v, want %v", state, want)
	}
	var got []string
	for node.Revision() < last {
		events, _, err := node.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			got = append(got, e.latest().Key)
		}
	}
	slices.Sort(got)
	if want := "[a/p0 a/p1 a/p2 a/p3 a/p3 a/p4 a/q]"; fmt.Sprint(got) != want {
		t.Errorf("watcher of a node saw %v, want %s", got, want)
	}
	if _, err := r.Watch(t.Context(), middle, Interest{}); !isCompacted(err) {
		t.Errorf("Watch from within the gap: %v", err)
	}
	resumed := watch(t, r, now, Interest{})
	if events, _, err := resumed.Next(t.Context()); err != nil || len(events) != 7 {
		t.Errorf("resumed from before the gap: %d events, %v", len(events), err)
	}
	if _, err := r.ViewAt(t.Context(), now); !isCompacted(err) {
		t.Errorf("what the store has forgotten: %v", err)
	}
}

func TestBrokenWatchIsReopened(t *testing.T) {
	s := newFakeStore()
	c := newCache(t, s, nil)
	r := c.Resource(podConfig())
	cursor := watch(t, r, snapshot(t, r, 0).Revision(), Interest{})
	for i := range 5 {
		revision := put(t, s, "a/p", fmt.Sprintf("n1|red|%d", i))
		events, _, err := cursor.Next(t.Context())
		if err != nil || len(events) != 1 || events[0].Revision != revision {
			t.Fatalf("%d events, %v", len(events), err)
		}
		s.breakWatches()
	}
}

func TestEnd(t *testing.T) {
	ends := map[string]struct {
		end  func(*fakeStore, *Cache)
		want error
	}{
		"store closed":     {func(s *fakeStore, c *Cache) { s.Close() }, storage.ErrClosed},
		"cache closed":     {func(s *fakeStore, c *Cache) { c.Close() }, storage.ErrClosed},
		"store failed":     {func(s *fakeStore, c *Cache) { c.fail(storage.ErrFailed) }, storage.ErrFailed},
		"resource removed": {func(s *fakeStore, c *Cache) { c.Remove(podPrefix) }, ErrRemoved},
	}
	for name, test := range ends {
		t.Run(name, func(t *testing.T) {
			s := newFakeStore()
			c := newCache(t, s, nil)
			r := c.Resource(podConfig())
			put(t, s, "a/p", "n1|red|x")
			snapshot(t, r, 0)
			var waiting sync.WaitGroup
			for _, in := range []Interest{{}, {Namespace: "a"}} {
				cursor := watch(t, r, c.Applied()+1, in)
				waiting.Go(func() {
					if _, _, err := cursor.Next(t.Context()); !errors.Is(err, test.want) {
						t.Errorf("Next: %v", err)
					}
					cursor.Revision()
				})
			}
			if name != "resource removed" {
				waiting.Go(func() {
					if _, err := r.Snapshot(t.Context(), 1000); !errors.Is(err, test.want) {
						t.Errorf("Snapshot: %v", err)
					}
				})
			}
			test.end(s, c)
			waiting.Wait()
			if _, err := r.Snapshot(t.Context(), 0); !errors.Is(err, test.want) {
				t.Errorf("Snapshot after: %v", err)
			}
			if _, err := r.Watch(t.Context(), 0, Interest{}); !errors.Is(err, test.want) {
				t.Errorf("Watch after: %v", err)
			}
			if again := c.Resource(podConfig()); name == "resource removed" && snapshot(t, again, 0).Len() != 1 {
				t.Error("made again, it does not work")
			}
		})
	}
}

// TestRemovedAfterTheLastEvent checks that the cursors of a removed resource return all events of the log before
// they end. This includes a cursor that is opened a short time after the removal. Later the log is dropped.
func TestRemovedAfterTheLastEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		c := newCache(t, s, nil)
		r := c.Resource(podConfig())
		put(t, s, "a/p", "n1|red|x")
		snapshot(t, r, 0)
		from := c.Applied()
		cursors := []*Cursor{watch(t, r, from, Interest{}), watch(t, r, from, Interest{Namespace: "a"})}
		revision := put(t, s, "a/p", "n1|red|y")
		snapshot(t, r, revision)
		c.Remove(podPrefix)
		cursors = append(cursors, watch(t, r, from, Interest{}), watch(t, r, from, Interest{Namespace: "a"}))
		for i, cursor := range cursors {
			events, _, err := cursor.Next(t.Context())
			if err != nil || len(events) != 1 || events[0].Revision != revision {
				t.Errorf("cursor %d: Next returned %d events and %v, want the one of revision %d", i, len(events), err, revision)
			}
			if _, _, err := cursor.Next(t.Context()); !errors.Is(err, ErrRemoved) {
				t.Errorf("cursor %d: then Next returned %v, want ErrRemoved", i, err)
			}
			cursor.Close()
		}
		time.Sleep(removedGrace + time.Second)
		synctest.Wait()
		if n := r.published.log.Bytes(); n != 0 {
			t.Errorf("the log of the removed resource still has %d bytes", n)
		}
		if _, err := r.Watch(t.Context(), from, Interest{}); !errors.Is(err, ErrRemoved) {
			t.Errorf("a watch that begins after that: %v, want ErrRemoved", err)
		}
	})
}

func TestStoreClosedFromTheStart(t *testing.T) {
	s := newFakeStore()
	s.Close()
	r := newCache(t, s, nil).Resource(podConfig())
	if _, err := r.Snapshot(t.Context(), 0); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Snapshot: %v", err)
	}
}

func TestIdleResourceIsDroppedUnlessWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		const idle = time.Minute
		c := newCache(t, s, func(o *Options) { o.IdleDrop = idle })
		r := c.Resource(podConfig())
		cursor := watch(t, r, 1, Interest{})
		time.Sleep(3 * idle)
		synctest.Wait()
		if !r.Stats().Loaded {
			t.Error("dropped while watched")
		}
		cursor.Close()
		time.Sleep(3 * idle)
		synctest.Wait()
		if r.Stats().Loaded {
			t.Errorf("not dropped after %v without a reader", 3*idle)
		}
		revision := put(t, s, "a/p", "n1|red|x")
		if snap := snapshot(t, r, revision); snap.Len() != 1 {
			t.Errorf("%d objects after loading again", snap.Len())
		}
	})
}

func TestUnreadableObject(t *testing.T) {
	s := newFakeStore()
	c := newCache(t, s, nil)
	r := c.Resource(podConfig())
	put(t, s, "a/p", "n1|red|x")
	cursor := watch(t, r, snapshot(t, r, 0).Revision(), Interest{Index: "node", Value: "n1"})
	revision := put(t, s, "a/p", "nonsense")
	o, ok := snapshot(t, r, revision).Get("a/p")
	if !ok || !errors.Is(o.Err(), errUnreadable) {
		t.Errorf("%v, %v", o, ok)
	}
	if events, _, err := cursor.Next(t.Context()); err != nil || len(events) != 1 {
		t.Errorf("%d events, %v", len(events), err)
	}
	put(t, s, "a/p", "n1|red|x")
	events, _, err := cursor.Next(t.Context())
	if err != nil || len(events) != 1 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if _, err := events[0].PrevAt(); !errors.Is(err, errUnreadable) {
		t.Errorf("PrevAt: %v", err)
	}
}

// TestUnreadableObjectMatchesFieldWatchers checks that the events of an unread object are delivered to watchers of any
// field value, because its fields are unknown.
func TestUnreadableObjectMatchesFieldWatchers(t *testing.T) {
	s := newFakeStore()
	c := newCache(t, s, nil)
	r := c.Resource(podConfig())
	put(t, s, "a/p", "n1|red|x")
	from := snapshot(t, r, 0).Revision()
	one, two := watch(
		t, r, from, Interest{Index: "node", Value: "n1"},
	), watch(t, r, from, Interest{Index: "node", Value: "n2"})
	elsewhere := watch(t, r, from, Interest{Namespace: "b", Index: "node", Value: "n2"})
	put(t, s, "a/new", "nonsense")
	snapshot(t, r, put(t, s, "a/new", "n3|red|x"))
	for name, cursor := range map[string]*Cursor{"n1": one, "n2": two} {
		if events, _, err := cursor.Next(t.Context()); err != nil || len(events) != 2 {
			t.Errorf("%s: %d events, %v", name, len(events), err)
		}
	}
	late := watch(t, r, from, Interest{Index: "node", Value: "n2"}) // reads the log itself, not a posting
	if events, _, err := late.Next(t.Context()); err != nil || len(events) != 2 {
		t.Errorf("late: %d events, %v", len(events), err)
	}
	snapshot(t, r, put(t, s, "b/q", "n2|red|x"))
	if events, _, err := elsewhere.Next(t.Context()); err != nil || len(events) != 1 {
		t.Errorf("elsewhere: %d events, %v", len(events), err)
	}
}

func TestAddEncoding(t *testing.T) {
	s := newFakeStore()
	c := newCache(t, s, nil)
	r := c.Resource(podConfig())
	r.AddEncoding("a/p", 2, 1, []byte("not loaded"))
	r1 := put(t, s, "a/p", "n1|red|x")
	snapshot(t, r, r1)
	r.AddEncoding("a/p", r1, 1, []byte("current"))
	s.hold(true)
	r2 := put(t, s, "a/p", "n1|red|y")
	put(t, s, "a/q", "n1|red|y")
	r.AddEncoding("a/p", r2, 1, []byte("early"))
	r.AddEncoding("a/p", r2, 2, []byte("early too"))
	r.AddEncoding("a/q", r2, 1, []byte("never"))
	old, _ := snapshot(t, r, 0).Get("a/p")
	s.hold(false)
	now, _ := snapshot(t, r, r2+1).Get("a/p")
	for _, want := range []struct {
		o    *Object
		id   EncodingID
		data string
	}{{old, 1, "current"}, {now, 1, "early"}, {now, 2, "early too"}} {
		if data, ok := want.o.CachedEncoding(want.id); !ok || string(data) != want.data {
			t.Errorf("%q, want %q", data, want.data)
		}
	}
	if len(r.pending.objects) != 0 {
		t.Errorf("%d offers left", len(r.pending.objects))
	}
	checkEncodings(t, c)
}

func TestEncodingBudget(t *testing.T) {
	s := newFakeStore()
	c := newCache(t, s, func(o *Options) { o.EncodingBudget = 100 * 1000 })
	r := c.Resource(podConfig())
	for i := range 1000 {
		put(t, s, fmt.Sprintf("a/p%03d", i), "n1|red|x")
	}
	now, _ := c.Current(t.Context())
	snap := snapshot(t, r, now)
	hot, _ := snap.Get("a/p500")
	encoding := func() ([]byte, error) { return make([]byte, 900), nil }
	hits := 0
	for range 3 {
		snap.Ascend("", "", func(o *Object) bool {
			if _, ok := hot.CachedEncoding(1); ok {
				hits++
			}
			if _, err := r.Encoded(o, 1, encoding); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Encoded(hot, 1, encoding); err != nil {
				t.Fatal(err)
			}
			return true
		})
	}
	if hits < 2900 {
		t.Errorf("what is used all the time was there %d of 3000 times", hits)
	}
	if n := c.Usage().Encodings; n > 100*1000+2000 || n < 80*1000 {
		t.Errorf("%d bytes of encodings", n)
	}
	checkEncodings(t, c)
	if _, err := r.Encoded(hot, 9, func() ([]byte, error) { return nil, errBroken }); !errors.Is(err, errBroken) {
		t.Error(err)
	}
}

func TestSnapshotQueries(t *testing.T) {
	s := newFakeStore()
	c := newCache(t, s, nil)
	r := c.Resource(podConfig())
	for i := range 300 {
		put(t, s, fmt.Sprintf("ns%d/p%03d", i%3, i), fmt.Sprintf("n%d|red|x", i%10))
	}
	now, _ := c.Current(t.Context())
	snap := snapshot(t, r, now)
	var keys []string
	add := func(o *Object) bool { keys = append(keys, o.Key); return len(keys) < 3 }
	snap.Ascend("ns1/p200", "ns1/", add)
	if got := fmt.Sprint(keys); got != "[ns1/p202 ns1/p205 ns1/p208]" {
		t.Error(got)
	}
	keys = nil
	if !snap.Index("node", "n4", "ns1/p005", "ns1/", add) {
		t.Error("no index")
	}
	if got := fmt.Sprint(keys); got != "[ns1/p034 ns1/p064 ns1/p094]" {
		t.Error(got)
	}
	if n := snap.CountPrefix("ns1/", "ns1/p200"); n != 33 {
		t.Errorf("CountPrefix %d", n)
	}
	if snap.Index("color", "red", "", "", add) {
		t.Error("an index that is not there")
	}
	o, _ := snap.Get("ns1/p001")
	if got := fmt.Sprint(o.Labels); got != "[{color red}]" || o.Namespace != "ns1" || o.Name != "p001" {
		t.Errorf("%+v", o)
	}
	if _, err := r.Watch(t.Context(), 0, Interest{Index: "color"}); err == nil {
		t.Error("Watch by an index that is not there")
	}
}

// TestLogOfLargeObjectsIsBounded checks that the log is also bounded in bytes for large objects with cached encodings.
func TestLogOfLargeObjectsIsBounded(t *testing.T) {
	const size, writes, bound = 1 << 20, 40, 4 << 20
	s := newFakeStore()
	c := newCache(t, s, func(o *Options) { o.WindowBytes = bound })
	r := c.Resource(podConfig())
	snapshot(t, r, 0)
	kept := make([]*Object, 0, writes)
	for i := range writes {
		revision := put(t, s, "a/p", "n1|red|"+strings.Repeat("x", size))
		o, _ := snapshot(t, r, revision).Get("a/p")
		if _, err := r.Encoded(o, 1, func() ([]byte, error) { return make([]byte, size), nil }); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, o)
		if st := r.Stats(); st.WindowBytes > bound && st.Events > 1 {
			t.Fatalf(
				"after %d writes the log has %d events and keeps %d bytes, more than %d", i+1, st.Events, st.WindowBytes, bound,
			)
		}
	}
	if n := c.Usage().Encodings; n > bound+2*size {
		t.Errorf("%d bytes of forms, mostly of objects that only the log keeps", n)
	}
	runtime.KeepAlive(kept)
}

// slowLoadStore fails the next reads, as if their revision had been compacted in the meantime.
type slowLoadStore struct {
	*fakeStore
	failures atomic.Int64 // number of reads that will fail
}

func (s *slowLoadStore) Range(ctx context.Context, r storage.RangeRequest) (storage.RangeResult, error) {
	if s.failures.Add(-1) >= 0 {
		return storage.RangeResult{}, &storage.CompactedError{Revision: 1, Compacted: 2}
	}
	return s.fakeStore.Range(ctx, r)
}

// TestLoadPausesAfterCompaction checks that a load whose revision was compacted is tried again after a pause.
func TestLoadPausesAfterCompaction(t *testing.T) {
	s := &slowLoadStore{fakeStore: newFakeStore()}
	s.failures.Store(1 << 40)
	c := newCache(t, s, nil)
	r := c.Resource(podConfig())
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond)
	defer cancel()
	if _, err := r.Snapshot(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a load that cannot end: %v", err)
	}
	if tries := 1<<40 - s.failures.Load(); tries > 5 {
		t.Errorf("a load was begun %d times in 120 ms", tries)
	}
	s.failures.Store(0)
	snapshot(t, r, 0)
}

// heldLoadStore holds the result of its first read until release is closed.
type heldLoadStore struct {
	*fakeStore
	read, release chan struct{}
	once          sync.Once
}

func (s *heldLoadStore) Range(ctx context.Context, r storage.RangeRequest) (storage.RangeResult, error) {
	result, err := s.fakeStore.Range(ctx, r)
	s.once.Do(func() {
		close(s.read)
		<-s.release
	})
	return result, err
}

// TestALoadShowsItsChangesAtOnce checks that the first visible state of a resource contains the changes that were
// made during its load. The feed has already announced their revision as applied, so a read of the latest state
// would otherwise miss them.
func TestALoadShowsItsChangesAtOnce(t *testing.T) {
	s := &heldLoadStore{fakeStore: newFakeStore(), read: make(chan struct{}), release: make(chan struct{})}
	put(t, s, "a/first", "n1|red|x")
	c := newCache(t, s, nil)
	r := c.Resource(podConfig())
	go func() { _, _ = r.Snapshot(t.Context(), 0) }()
	wait.Receive(t, "the load to read the store", s.read)
	var last int64
	for i := range 3000 {
		last = put(t, s, fmt.Sprintf("a/p%d", i), "n1|red|x")
	}
	if err := c.Await(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	close(s.release)
	wait.Until(t, "the load to end", func() bool { return r.published.state.Load() != nil })
	snap, ok, err := r.snapshotOf(t.Context(), last)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, ok := snap.Get("a/p2999"); !ok {
		t.Errorf("a snapshot at revision %d lacks the change of revision %d", snap.Revision(), last)
	}
}
