package cache

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache/index"
)

// newDecoder returns a decoder of pods without a cache.
func newDecoder(codec Codec) *decoder {
	config := podConfig()
	config.Codec = codec
	return &decoder{config: &config, encodings: &encodingBudget{limit: 1 << 20}, logger: slog.New(slog.DiscardHandler)}
}

// newPublished returns a followed resource at a revision, without a cache.
func newPublished(d *decoder, revision int64) *published {
	p := &published{encodings: d.encodings, budget: &logBudget{limit: 1 << 20, over: make(chan struct{}, 1)}}
	p.begin(revision, &state{revision: revision, loaded: true, objects: d.newObjectSet()}, nil, 1<<20)
	return p
}

func entryOf(name string, create, revision int64) storage.Entry {
	return storage.Entry{
		Key: podPrefix + "a/" + name, Value: fmt.Appendf(nil, "node%d|red|%d", revision%3, revision),
		ModRevision: revision, CreateRevision: create,
	}
}

func namesOf(st *state) (list []string) {
	st.objects.All().Ascend("", "", func(o *Object) bool {
		list = append(list, fmt.Sprintf("%s@%d/%d", o.Key, o.CreateRevision, o.Revision))
		return true
	})
	return list
}

// TestStateDifference applies the difference between a state and random entries to the state, and compares the
// result with the entries.
func TestStateDifference(t *testing.T) {
	d, random := newDecoder(fakeCodec{}), rand.New(rand.NewPCG(1, 2))
	st := &state{revision: 1, loaded: true, objects: d.newObjectSet()}
	entries := map[string]storage.Entry{}
	for revision := int64(2); revision < 2000; {
		base := revision + random.Int64N(20) + 1
		for ; revision <= base; revision++ {
			name := fmt.Sprint(random.IntN(8))
			old, ok := entries[name]
			switch {
			case ok && random.IntN(3) == 0:
				delete(entries, name)
			case ok:
				entries[name] = entryOf(name, old.CreateRevision, revision)
			default:
				entries[name] = entryOf(name, revision, revision)
			}
		}
		changes, err := st.difference(podPrefix, base, func(each func(storage.Entry) bool) error {
			for _, e := range entries {
				each(e)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		before := namesOf(st)
		next, events := st.after(d, changes, base)
		var want []string
		for _, e := range entries {
			want = append(want, fmt.Sprintf("%s@%d/%d", e.Key[len(podPrefix):], e.CreateRevision, e.ModRevision))
		}
		slices.Sort(want)
		if got := namesOf(next); !slices.Equal(got, want) {
			t.Fatalf("at %d: %v, want %v", base, got, want)
		}
		if got := namesOf(&state{objects: undo(next.objects, events)}); !slices.Equal(got, before) {
			t.Fatalf("at %d the events do not lead back: %v, want %v", base, got, before)
		}
		st = next
	}
}

// TestPublishedEnd checks that end does nothing if may returns false, and that it keeps the log if keepLog is set.
func TestPublishedEnd(t *testing.T) {
	d := newDecoder(fakeCodec{})
	p := newPublished(d, 1)
	next, events := p.state.Load().after(d, []storage.Event{{Entry: entryOf("x", 2, 2)}}, 2)
	p.publish(next, events, 1<<20)
	var used atomic.Bool
	c := &Cursor{resource: &Resource{config: *d.config}, interest: Interest{Namespace: "a"}, field: -1, from: 1}
	if !p.join(c, &used) || !used.Load() || c.behind || len(c.posting.Since(c.next)) != 0 {
		t.Fatalf("the cursor is at %d of %d, behind: %t", c.next, p.log.Next(), c.behind)
	}
	idle := func(st *state, cursors int) bool { return st != nil && cursors == 0 }
	if _, ok := p.end(false, idle); ok || p.state.Load() != next {
		t.Fatal("a resource with a cursor ended")
	}
	p.leave(c)
	if last, ok := p.end(true, idle); !ok || last != next || p.last() != events[0] {
		t.Fatal("the resource did not end, or its log is gone")
	}
	if p.join(c, &used) {
		t.Fatal("a cursor joined a resource that ended")
	}
	if !p.joinRemoved(c) {
		t.Fatal("a cursor cannot read the log that was kept")
	}
	p.leave(c)
	p.dropLog()
	if p.last() != nil || p.budget.used.Load() != 0 || p.busy.Load() != 0 {
		t.Fatalf("left: event %v, %d bytes, %d busy cursors", p.last(), p.budget.used.Load(), p.busy.Load())
	}
}

// TestPublishedRestart: after a restart of the log, a cursor at its end notices at once that it may have missed
// events, and does not wait.
func TestPublishedRestart(t *testing.T) {
	p := newPublished(newDecoder(fakeCodec{}), 1)
	r := &Resource{cache: &Cache{}}
	c := &Cursor{resource: r, field: -1, from: 1}
	r.published.encodings, r.published.budget = p.encodings, p.budget
	r.published.begin(1, p.state.Load(), nil, 1<<20)
	r.published.join(c, &r.usage.used)
	wait, err := c.collect()
	if err != nil || wait == nil || r.published.busy.Load() != 0 {
		t.Fatalf("wait %v, %v, %d busy", wait, err, r.published.busy.Load())
	}
	r.published.restart(7)
	select {
	case <-wait:
		t.Fatal("the cursor woke before wakeAll")
	default:
	}
	r.published.wakeAll()
	<-wait
	if _, err := c.collect(); err != nil || !c.behind || r.published.busy.Load() != 1 {
		t.Fatalf("behind: %t, %v, %d busy", c.behind, err, r.published.busy.Load())
	}
}

// TestUsageRoom: after a resource did not fit, the room is not computed again for fullPause.
func TestUsageRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, others, asked := usage{memory: &Memory{LoadedBytes: 1000}}, int64(950), 0
		room := func(n int64) int64 {
			bytes, ok := u.room(n, func() int64 { asked++; return others })
			if !ok {
				return -1
			}
			return bytes
		}
		u.noteSize(10, 100) // ten bytes each
		if got := room(5); got != 50 {
			t.Errorf("room %d for five objects of ten bytes", got)
		}
		if got := room(6); got != -1 || !u.isFull() {
			t.Errorf("room %d for six objects", got)
		}
		others = 0
		if got := room(1); got != -1 || asked != 2 {
			t.Errorf("room %d during the pause, asked %d times", got, asked)
		}
		time.Sleep(fullPause)
		if got := room(6); got != 1000 {
			t.Errorf("room %d after the pause", got)
		}
	})
}

// TestUsageIsWorthLoading: a resource is worth loading when its reads have cost as much as reading all objects.
// Charges fade.
func TestUsageIsWorthLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Memory{}.withDefaults(1 << 30)
		u := usage{memory: &m}
		u.reads.Add(60)
		if sum := u.charge(30); u.isWorthLoading(sum, 100) || !u.isWorthLoading(sum, 90) {
			t.Errorf("demand %v", sum)
		}
		time.Sleep(m.HalfLife)
		if sum := u.charge(0); sum != 45 {
			t.Errorf("after a half-life the demand is %v", sum)
		}
	})
}

// TestResolverRestarts: the goroutine ends when no object is unread, and start begins another one.
func TestResolverRestarts(t *testing.T) {
	codec := newLockedCodec()
	d := newDecoder(codec)
	var b background
	b.ctx, b.cancel = t.Context(), func() {}
	var mu sync.Mutex
	objects := d.newObjectSet()
	w := &resolver{decoder: d, background: &b}
	w.unread = func() index.Tree[*Object] {
		mu.Lock()
		defer mu.Unlock()
		return d.unreadObjects(objects)
	}
	w.replace = func(resolved map[*Object]*Object) {
		mu.Lock()
		defer mu.Unlock()
		objects = (&state{objects: objects}).withReadable(resolved).objects
	}
	w.start() // nothing is unread
	for _, name := range []string{"x", "y"} {
		mu.Lock()
		edit := objects.Edit()
		o := d.read(storage.Entry{Key: podPrefix + "a/" + name, Value: []byte(name + ">node1|red|1"), ModRevision: 2}, nil)
		edit.Put(o.Key, o)
		objects = edit.Done()
		mu.Unlock()
		if o.Err() == nil {
			t.Fatalf("%s can be read", name)
		}
		w.start()
		w.start()
		codec.unlock(name)
		b.tasks.Wait()
		if w.running || w.unread().Len() != 0 || o.Resolved() == o {
			t.Fatalf("%s: running %t, %d unread", name, w.running, w.unread().Len())
		}
	}
}

// TestBackgroundStop: after stop, spawn starts no goroutine, and pause returns at once.
func TestBackgroundStop(t *testing.T) {
	c := newCache(t, newFakeStore(), nil)
	ran := make(chan struct{})
	if !c.background.spawn(func() { close(ran) }) {
		t.Fatal("nothing runs")
	}
	<-ran
	c.Close()
	if c.background.spawn(func() { t.Error("it runs after Close") }) || c.background.pause(time.Hour) {
		t.Error("the cache is closed, and its background goes on")
	}
}
