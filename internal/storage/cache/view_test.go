package cache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage"
)

// page is the result of one list of a view.
type page struct {
	keys     []string
	revision int64
	rest     int64
}

// listPage lists up to limit objects in the same way as package rest.
func listPage(ctx context.Context, v *View, from, prefix string, limit int) (p page, err error) {
	most := 0
	if limit > 0 {
		most = limit + 1
	}
	next, shown := "", 0
	err = v.Ascend(ctx, from, prefix, most, func(o *Object) bool {
		if limit > 0 && shown == limit {
			next = p.last() + "\x00"
			return false
		}
		shown++
		p.keys = append(p.keys, showObject(o))
		return true
	})
	p.revision = v.Revision()
	if err == nil && next != "" {
		p.rest, err = v.Remaining(ctx, prefix, from, next, shown)
	}
	return p, err
}

// last returns the key of the last object of the page.
func (p *page) last() string {
	key, _, _ := strings.Cut(p.keys[len(p.keys)-1], "@")
	return key
}

// countingStore counts the entries that are read from a store.
type countingStore struct {
	storage.Store
	entries, counts, counted atomic.Int64
	hold                     chan struct{} // if set, ranges wait until it is closed
}

func (s *countingStore) Range(ctx context.Context, r storage.RangeRequest) (storage.RangeResult, error) {
	if s.hold != nil {
		<-s.hold
	}
	result, err := s.Store.Range(ctx, r)
	s.entries.Add(int64(len(result.Entries)))
	if r.CountOnly || !r.Uncounted {
		s.counts.Add(1)
		s.counted.Add(result.Count)
	}
	return result, err
}

// TestViewsOfMemoryAndStoreAgree makes random changes. It compares the views of caches with all objects in memory,
// with none, and with frequent changes between the two.
func TestViewsOfMemoryAndStoreAgree(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage.Store) {
		names := make([]string, 0, len(memories))
		resources := make([]*Resource, 0, len(memories))
		for name, memory := range memories {
			names = append(names, name)
			resources = append(resources, newCache(t, s, func(o *Options) { o.Memory = memory }).Resource(podConfig()))
		}
		random := rand.New(rand.NewPCG(1, 7))
		ctx := t.Context()
		last := int64(1)
		for step := range effort.Rounds(1500, 400) {
			key := fmt.Sprintf("ns%d/p%02d", random.IntN(3), random.IntN(40))
			if random.IntN(4) == 0 {
				last = commit(t, s, storage.Delete(podPrefix+key))
			} else {
				last = put(t, s, key, fmt.Sprintf("n%d|red|%d", random.IntN(4), step))
			}
			from, prefix := "", ""
			if random.IntN(2) == 0 {
				prefix = fmt.Sprintf("ns%d/", random.IntN(4))
			}
			if random.IntN(3) == 0 {
				from = prefix + fmt.Sprintf("p%02d", random.IntN(40)) + pick(random, "", "\x00")
			}
			limit, at := random.IntN(12), int64(Latest)
			if random.IntN(2) == 0 {
				at = max(1, last-random.Int64N(700))
			}
			node := fmt.Sprintf("n%d", random.IntN(5))
			var first string
			for i, r := range resources {
				got := askView(ctx, r, at, from, prefix, node, key, limit)
				if i == 0 {
					first = got
				} else if got != first {
					t.Fatalf("step %d at %d from %q below %q, limit %d:\n%s: %s\n%s: %s",
						step, at, from, prefix, limit, names[0], first, names[i], got)
				}
			}
		}
	})
}

// askView returns the answers of all methods of a view.
func askView(ctx context.Context, r *Resource, at int64, from, prefix, node, key string, limit int) string {
	view := func() (*View, error) {
		if at == Latest {
			return r.View(ctx, Latest)
		}
		return r.ViewAt(ctx, at)
	}
	v, err := view()
	if err != nil {
		return err.Error()
	}
	p, err := listPage(ctx, v, from, prefix, limit)
	out := fmt.Sprint(p, err)
	for len(p.keys) > 0 && p.rest > 0 && err == nil { // to the end of the list
		if v, err = r.ViewAt(ctx, p.revision); err == nil {
			p, err = listPage(ctx, v, p.last()+"\x00", prefix, limit)
		}
		out += fmt.Sprint(p, err)
	}
	if v, err = view(); err != nil {
		return out + err.Error()
	}
	o, ok, err := v.Get(ctx, key)
	out += fmt.Sprint(ok, err, v.Revision())
	if ok {
		out += showObject(o)
	}
	found, err := v.Index(ctx, "node", node, from, prefix, Streaming, func(o *Object) bool {
		out += " " + showObject(o)
		return true
	})
	none, _ := v.Index(ctx, "size", node, from, prefix, Streaming, func(*Object) bool { return true })
	return out + fmt.Sprint(found, none, err)
}

func pick[T any](random *rand.Rand, list ...T) T { return list[random.IntN(len(list))] }

// TestOldPagesCostWhatTheyReturn checks that neither a page of a revision before the log nor a read at an exact
// revision reads the whole resource, and that the objects after a page are counted only once.
func TestOldPagesCostWhatTheyReturn(t *testing.T) {
	const objects, limit = 6000, 100
	for name, memory := range memories {
		t.Run(name, func(t *testing.T) {
			fake := filled(objects, func(int) []byte { return []byte("n1|red|x") })
			s := &countingStore{Store: fake}
			r := newCache(t, s, func(o *Options) { o.WindowBytes = 1; o.Memory = memory }).Resource(podConfig())
			v, err := r.View(t.Context(), Latest)
			if err != nil {
				t.Fatal(err)
			}
			p, err := listPage(t.Context(), v, "", "", limit)
			if err != nil || p.rest != objects-limit {
				t.Fatalf("%d remain, %v", p.rest, err)
			}
			first := p.revision
			for i := range 5 {
				put(t, fake, fmt.Sprintf("default/new-%d", i), "n1|red|x")
			}
			if err := r.cache.Await(t.Context(), fake.revision); err != nil {
				t.Fatal(err)
			}
			settle(t, r)
			s.entries.Store(0)
			s.counts.Store(0)
			shown := limit
			for p.rest > 0 {
				if v, err = r.ViewAt(t.Context(), first); err == nil {
					p, err = listPage(t.Context(), v, p.last()+"\x00", "", limit)
				}
				if shown += len(p.keys); err != nil || p.rest != int64(objects-shown) || p.revision != first {
					t.Fatalf("%d shown and %d remain at %d, %v", shown, p.rest, p.revision, err)
				}
			}
			// In the restless cache a load may run at the same time.
			if n := s.entries.Load(); name != "restless" && n > objects+objects/limit {
				t.Errorf("%d entries were read for %d objects", n, objects)
			}
			if n := s.counts.Load(); name != "restless" && n > 1 {
				t.Errorf("what remains was counted %d times", n)
			}
		})
	}
}

// TestOnePageDoesNotCountAll checks that the number of objects after a page of an old state is estimated if
// counting would read all of them.
func TestOnePageDoesNotCountAll(t *testing.T) {
	const objects = 2 * maxCounted
	for name, memory := range memories {
		fake := filled(objects, func(int) []byte { return []byte("n1|red|x") })
		s := &countingStore{Store: fake}
		r := newCache(t, s, func(o *Options) { o.WindowBytes = 1; o.Memory = memory }).Resource(podConfig())
		showLatest(t, r)
		old := fake.revision
		for range 3 {
			put(t, fake, "default/new", "n1|red|x")
		}
		if err := r.cache.Await(t.Context(), fake.revision); err != nil {
			t.Fatal(err)
		}
		settle(t, r)
		v, err := r.ViewAt(t.Context(), old)
		if err != nil {
			t.Fatal(err)
		}
		s.counted.Store(0)
		p, err := listPage(t.Context(), v, "", "", 1)
		if err != nil || len(p.keys) != 1 || p.rest < maxCounted || p.rest > objects+1 {
			t.Errorf("%s: %d shown and %d remain, %v", name, len(p.keys), p.rest, err)
		}
		if n := s.counted.Load(); name != "restless" && n > maxCounted {
			t.Errorf("%s: %d objects were counted for a page of one", name, n)
		}
	}
}

// TestFirstPagesOfANamespaceCountOnce checks that the number of objects after the first page of a namespace is
// counted once, and that the changes since then are added to it. If only a lower bound was counted, the number is
// counted again after deletions.
func TestFirstPagesOfANamespaceCountOnce(t *testing.T) {
	for _, objects := range []int{300, maxCounted + 300} {
		fake := filled(objects, func(int) []byte { return []byte("n1|red|x") })
		s := &countingStore{Store: fake}
		r := newCache(t, s, func(o *Options) { o.Memory = memories["stored"] }).Resource(podConfig())
		counts := func() (rest, counts int64) {
			t.Helper()
			v, err := r.View(t.Context(), Latest)
			if err != nil {
				t.Fatal(err)
			}
			before := s.counts.Load()
			p, err := listPage(t.Context(), v, "", "default/", 2)
			if err != nil || len(p.keys) != 2 {
				t.Fatal(p, err)
			}
			return p.rest, s.counts.Load() - before
		}
		first, _ := counts()
		wait.Until(t, "all objects are counted", func() bool { return r.Stats().Counted })
		for i := range 3 {
			put(t, fake, fmt.Sprintf("default/znew-%d", i), "n1|red|x")
			put(t, fake, fmt.Sprintf("else/new-%d", i), "n1|red|x")
		}
		await := func() { // otherwise the log may lack changes, and the page counts
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := r.cache.Await(ctx, fake.revision); err != nil {
				t.Fatalf("the changes do not reach the log: %v", err)
			}
		}
		await()
		if rest, n := counts(); rest != first+3 || n != 0 {
			t.Errorf("of %d objects %d remain, then %d after 3 were added; counted %d times", objects, first, rest, n)
		}
		commit(t, fake, storage.Delete(podPrefix+"default/znew-1"))
		await()
		rest, n := counts()
		if objects < maxCounted && (rest != first+2 || n != 0) || objects > maxCounted && (rest < maxCounted || n != 1) {
			t.Errorf("of %d objects %d remain, then %d after a deletion; counted %d times", objects, first, rest, n)
		}
	}
}

// TestReadsOfAnOldRevisionAreShared checks that many requests for all objects of an old revision share one read, which
// is cancelled when all requests have ended.
func TestReadsOfAnOldRevisionAreShared(t *testing.T) {
	const objects, readers = 3000, 20
	fake := filled(objects, func(int) []byte { return []byte("n1|red|x") })
	s := &countingStore{Store: fake, hold: make(chan struct{})}
	close(s.hold)
	r := newCache(t, s, func(o *Options) { o.Memory = memories["stored"] }).Resource(podConfig())
	old := fake.revision
	v, err := r.View(t.Context(), Latest)
	if err != nil {
		t.Fatal(err)
	}
	put(t, fake, "default/new", "n1|red|x")
	if v, err = r.ViewAt(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the objects are counted", func() bool { return r.Stats().Counted })
	s.entries.Store(0)
	s.hold = make(chan struct{})
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			v := *v
			n := 0
			err := v.Ascend(t.Context(), "", "", 0, func(*Object) bool { n++; return true })
			if err != nil || n != objects {
				t.Errorf("%d objects, %v", n, err)
			}
		})
	}
	defer func() { // reads wait for hold, so close it after a failure too
		select {
		case <-s.hold:
		default:
			close(s.hold)
		}
		all.Wait()
	}()
	wait.Until(t, "all readers wait for one read", func() bool {
		r.shared.mu.Lock()
		defer r.shared.mu.Unlock()
		users := 0
		for _, one := range r.shared.running {
			users = one.users
		}
		return users == readers
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	leaving := *v
	if err := leaving.Ascend(gone, "", "", 0, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader that leaves: %v", err)
	}
	close(s.hold)
	all.Wait()
	if n := s.entries.Load(); n != objects {
		t.Errorf("%d entries were read for %d readers of the same %d", n, readers, objects)
	}
	if len(r.shared.running) != 0 {
		t.Error("a read stays")
	}
}

// TestSharedReadIsBounded reads a state with more bytes than a shared read may have. Every object is yielded once
// and in order, and the shared part ends at its bound.
func TestSharedReadIsBounded(t *testing.T) {
	const objects, size = 4000, 10 << 10
	fake := filled(objects, func(int) []byte { return append([]byte("n1|red|"), make([]byte, size)...) })
	s := &countingStore{Store: fake, hold: make(chan struct{})}
	close(s.hold)
	r := newCache(t, s, func(o *Options) { o.Memory = memories["stored"] }).Resource(podConfig())
	v, err := r.ViewAt(t.Context(), fake.revision)
	if err != nil {
		t.Fatal(err)
	}
	shared, more, err := r.shared.objects(t.Context(), v, "", "")
	if err != nil || !more || len(shared) > sharedBytes/size+1 {
		t.Fatalf("%d objects are shared, more is %v, error %v", len(shared), more, err)
	}
	s.entries.Store(0)
	last, n := "", 0
	err = v.Ascend(t.Context(), "", "", 0, func(o *Object) bool {
		if n++; o.Key <= last {
			t.Errorf("%q follows %q", o.Key, last)
		}
		last = o.Key
		return true
	})
	if err != nil || n != objects {
		t.Errorf("%d objects of %d, error %v", n, objects, err)
	}
	if read := s.entries.Load(); read > objects+firstPage { // the shared read ends within a page
		t.Errorf("%d entries were read for %d objects", read, objects)
	}
}

// TestMemoryFollowsReads checks that writes do not load a large resource, that reads do, and that the resource is
// dropped when it is no longer read.
func TestMemoryFollowsReads(t *testing.T) {
	const objects = 3000
	fake := newFakeStore()
	c := newCache(t, fake, func(o *Options) {
		o.Memory = Memory{SmallObjects: 100, UnreadBytes: 200 << 10, HalfLife: time.Hour}
	})
	r := c.Resource(podConfig())
	cursor := watch(t, r, snapshot(t, r, 0).Revision(), Interest{})
	most := int64(0)
	seen := 0
	var last int64
	for i := range objects {
		last = put(t, fake, fmt.Sprintf("a/p%04d", i), "n1|red|"+strings.Repeat("x", 100))
		for ; seen <= i; seen += len(cursor.events) {
			if _, _, err := cursor.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		most = max(most, r.Stats().Bytes)
	}
	st := r.Stats()
	if st.Loaded || !st.Followed || st.Objects != objects || !st.Counted || st.Bytes != 0 {
		t.Fatalf("written and not read: %+v", st)
	}
	if most > 300<<10 {
		t.Errorf("%d bytes were held", most)
	}
	get := func(i int) {
		t.Helper()
		v, err := r.View(t.Context(), Latest)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := v.Get(t.Context(), fmt.Sprintf("a/p%04d", i%objects)); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	reads := 0
	for ; !r.Stats().Loaded && reads < objects; reads++ {
		get(reads)
		settle(t, r)
	}
	if reads < objects/pointCharge/2 || reads > objects/pointCharge+1 {
		t.Errorf("loaded after %d reads of one of %d objects", reads, objects)
	}
	remove(t, fake, "a/p0000")
	c.dropSeldomRead()
	if !r.Stats().Loaded {
		t.Error("dropped though it is read")
	}
	r.usage.demand.value = 0 // as if a long time had passed
	c.dropSeldomRead()
	for n := int64(0); n < 2; n++ {
		if events, _, err := cursor.Next(t.Context()); err != nil || len(events) != 1 {
			t.Fatal(len(events), err)
		}
		last = put(t, fake, "a/p0001", "n1|red|y")
	}
	if err := c.Await(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	settle(t, r)
	if st := r.Stats(); st.Loaded || st.Objects != objects-1 {
		t.Errorf("not read for long: %+v", st)
	}
	checkEncodings(t, c)
}

// TestListsOfANamespaceLoad: a list of all objects of a namespace is served from the store if they are a small
// part of a large resource. It is served from memory if reading them from the store would be charged at least half
// as much as a load.
func TestListsOfANamespaceLoad(t *testing.T) {
	const objects, few = 600, 50
	fake := newFakeStore()
	for i := range objects {
		namespace := "many"
		if i < few {
			namespace = "few"
		}
		put(t, fake, fmt.Sprintf("%s/p%04d", namespace, i), "n1|red|x")
	}
	c := newCache(t, fake, func(o *Options) {
		o.Memory = Memory{SmallObjects: 100, HalfLife: time.Hour}
	})
	r := c.Resource(podConfig())
	list := func(prefix string, want int) bool {
		t.Helper()
		v, err := r.View(t.Context(), Latest)
		if err != nil {
			t.Fatal(err)
		}
		for v.memory != nil && !v.memory.counted { // the first read starts the count of the objects
			settle(t, r)
			if v, err = r.View(t.Context(), Latest); err != nil {
				t.Fatal(err)
			}
		}
		p, err := listPage(t.Context(), v, "", prefix, 0)
		if err != nil || len(p.keys) != want {
			t.Fatalf("%s: %d objects, %v", prefix, len(p.keys), err)
		}
		return v.Loaded()
	}
	if list("few/", few) {
		t.Error("a list of few objects has all loaded")
	}
	if !list("many/", objects-few) {
		t.Error("a list of nearly all objects is answered from the store")
	}
	if n := r.Stats().Loads; n != 1 {
		t.Errorf("%d loads", n)
	}
}

// TestRestartedLog checks that the cursors of a followed resource get each event once when the store compacts changes
// that the feed has not seen.
func TestRestartedLog(t *testing.T) {
	s := newFakeStore()
	c := newCache(t, s, func(o *Options) { o.Memory = memories["stored"] })
	r := c.Resource(podConfig())
	last := put(t, s, "a/p", "n1|red|x")
	all, one := watch(t, r, last, Interest{}), watch(t, r, last, Interest{Namespace: "a", Name: "p"})
	s.hold(true)
	put(t, s, "a/p", "n1|red|y")
	last = remove(t, s, "a/p")
	if err := s.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	s.hold(false)
	for _, cursor := range []*Cursor{all, one} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if events, _, err := cursor.Next(ctx); !isCompacted(err) {
			t.Errorf("%d events, %v", len(events), err)
		}
		cancel()
	}
	again := watch(t, r, last, Interest{})
	put(t, s, "a/q", "n1|red|x")
	if events, _, err := again.Next(t.Context()); err != nil || len(events) != 1 {
		t.Errorf("%d events, %v", len(events), err)
	}
	wait.Until(t, "one object is counted", func() bool { st := r.Stats(); return st.Objects == 1 && st.Counted })
}

// TestCompactedRevisionIsNotServed checks that a revision that the store has compacted cannot be read, even if the
// log still has it.
func TestCompactedRevisionIsNotServed(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage.Store) {
		for name, memory := range memories {
			r := newCache(t, s, func(o *Options) { o.Memory = memory }).Resource(podConfig())
			_, before := showLatest(t, r)
			put(t, s, "a/p", "n1|red|x")
			last := put(t, s, "a/p", "n1|red|y")
			if _, err := showAt(t.Context(), r, before); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := s.Compact(t.Context(), last); err != nil {
				t.Fatal(err)
			}
			if _, err := showAt(t.Context(), r, before); !isCompacted(err) {
				t.Errorf("%s: what is compacted: %v", name, err)
			}
			if _, err := showAt(t.Context(), r, last); err != nil {
				t.Errorf("%s: what is not: %v", name, err)
			}
		}
	})
}

// TestDemandFades compares the running sum of charges with a sum that is computed from all charges and their ages.
func TestDemandFades(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	const halfLife = time.Minute
	type charged struct {
		at   time.Time
		cost float64
	}
	var d demand
	var list []charged
	now := time.Unix(1000, 0)
	for range 300 {
		now = now.Add(time.Duration(random.Int64N(int64(20 * time.Second))))
		one := charged{now, float64(random.IntN(100))}
		list = append(list, one)
		got, want := d.add(now, halfLife, one.cost), 0.0
		for _, c := range list {
			want += c.cost * math.Pow(0.5, float64(now.Sub(c.at))/float64(halfLife))
		}
		if math.Abs(got-want) > 1e-6*want+1e-9 {
			t.Fatalf("%g, want %g", got, want)
		}
	}
}

// TestRemainingCountsAreBounded checks that the oldest counts are dropped when there are too many.
func TestRemainingCountsAreBounded(t *testing.T) {
	var m remainingCounts
	var kept []int64
	for i := range int64(3 * maxRemainingCounts) {
		m.put(remainingKey{"a", fmt.Sprint(i)}, remainingCount{revision: 1, number: i})
		m.put(remainingKey{"a", fmt.Sprint(i)}, remainingCount{revision: 2, number: i})
	}
	for i := range int64(3 * maxRemainingCounts) {
		if n, ok := m.get(remainingKey{"a", fmt.Sprint(i)}); ok && n == (remainingCount{revision: 2, number: i}) {
			kept = append(kept, i)
		}
	}
	if len(kept) != maxRemainingCounts || len(m.counts) != maxRemainingCounts ||
		!slices.Contains(kept, 3*maxRemainingCounts-1) {
		t.Errorf("%d of %d kept", len(kept), maxRemainingCounts)
	}
}

// TestLargeScansDoNotLoad checks that a read of all objects of a large resource is served from the store, even if
// its first objects make it look small. A resource is not loaded if there is no room.
func TestLargeScansDoNotLoad(t *testing.T) {
	const small, large = 200, 300
	value := func(i int) []byte {
		if i < small {
			return []byte("n1|red|x")
		}
		return []byte("n1|red|" + strings.Repeat("x", 10<<10))
	}
	for name, c := range map[string]struct {
		memory Memory
		loads  bool
	}{
		"larger than a scan may load": {Memory{SmallObjects: 100, ScanBytes: 1 << 20}, false},
		"small enough":                {Memory{SmallObjects: 100, ScanBytes: 8 << 20}, true},
	} {
		t.Run(name, func(t *testing.T) {
			fake := filled(small+large, value)
			r := newCache(t, fake, func(o *Options) { o.Memory = c.memory }).Resource(podConfig())
			for range 3 {
				v, err := r.View(t.Context(), Latest)
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				if err := v.Ascend(t.Context(), "", "", 0, func(*Object) bool { n++; return true }); err != nil {
					t.Fatal(err)
				}
				if n != small+large || v.Loaded() != c.loads || r.Stats().Loaded != c.loads {
					t.Errorf("%d objects, loaded %v %v, want %v", n, v.Loaded(), r.Stats().Loaded, c.loads)
				}
			}
		})
	}
	t.Run("no room", func(t *testing.T) {
		r := newCache(t, filled(small+large, value), func(o *Options) {
			o.Memory = Memory{SmallObjects: 100, ScanBytes: 1, LoadedBytes: 1 << 20, HalfLife: time.Hour}
		}).Resource(podConfig())
		for i := range 2 * (small + large) {
			v, err := r.View(t.Context(), Latest)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := v.Get(t.Context(), fmt.Sprintf("default/p%04d", i)); err != nil {
				t.Fatal(err)
			}
		}
		wait.Until(t, "the load that finds no room ends", func() bool {
			r.write.Lock()
			defer r.write.Unlock()
			return r.loading == nil
		})
		if r.Stats().Loaded {
			t.Error("the resource is loaded")
		}
	})
}
