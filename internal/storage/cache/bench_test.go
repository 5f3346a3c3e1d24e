package cache

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache/interest"
)

// plainCodec does not change values; the first 8 bytes are the name of the node.
type plainCodec struct{ labels []Label }

func (c plainCodec) Read(_ string, value []byte, _ int64) (Header, error) {
	return Header{Labels: c.labels, Data: value}, nil
}

func (c plainCodec) Restamp(data []byte, _ int64) ([]byte, error) { return data, nil }

// nodeCodec has one indexed field, the node.
type nodeCodec struct{ plainCodec }

func (c nodeCodec) Read(key string, value []byte, revision int64) (Header, error) {
	h, err := c.plainCodec.Read(key, value, revision)
	h.Fields = []string{string(value[:8])}
	return h, err
}

// filled returns a store with n objects, each put once.
func filled(n int, value func(i int) []byte) *fakeStore {
	s := newFakeStore()
	for i := range n {
		s.revision++
		key := fmt.Sprintf("%sdefault/object-%07d", podPrefix, i)
		s.versions[key] = []storage.Entry{{Key: key, Value: value(i), ModRevision: s.revision, CreateRevision: s.revision}}
	}
	return s
}

func benchResource(tb testing.TB, n int) (*Cache, *Resource, Snapshot) {
	data := make([]byte, 400)
	c := newCache(tb, filled(n, func(int) []byte { return data }), nil)
	config := podConfig()
	config.Codec, config.Indexes = plainCodec{}, nil
	r := c.Resource(config)
	return c, r, snapshot(tb, r, 0)
}

func BenchmarkSnapshotGet(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			_, r, _ := benchResource(b, n)
			keys := make([]string, 4096)
			for i := range keys {
				keys[i] = fmt.Sprintf("default/object-%07d", i*7919%n)
			}
			ctx := context.Background()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s, err := r.Snapshot(ctx, 0)
				if err != nil {
					b.Fatal(err)
				}
				if _, ok := s.Get(keys[i%len(keys)]); !ok {
					b.Fatal("missing")
				}
			}
		})
	}
}

func BenchmarkAscend(b *testing.B) {
	const n = 10_000
	_, _, s := benchResource(b, n)
	b.ReportAllocs()
	bytes := 0
	for b.Loop() {
		s.Ascend("", "default/", func(o *Object) bool { bytes += len(o.Data); return true })
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/object")
}

func BenchmarkEncodingHit(b *testing.B) {
	_, r, s := benchResource(b, 100)
	o, _ := s.Get("default/object-0000050")
	other := []byte("x")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Encoded(o, 3, func() ([]byte, error) { return append(other, o.Data...), nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodingAdd(b *testing.B) {
	_, r, s := benchResource(b, 100_000)
	var objects []*Object
	s.Ascend("", "", func(o *Object) bool { objects = append(objects, o); return true })
	r.cache.encodings.limit = 10 << 20
	data := make([]byte, 1000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_, _ = r.Encoded(objects[i%len(objects)], 3, func() ([]byte, error) { return data, nil })
	}
}

// BenchmarkAppend measures how long the feed takes to apply one event of a resource with 10,000 objects and
// several numbers of cursors. The event matches no cursor.
func BenchmarkAppend(b *testing.B) {
	for _, cursors := range []int{0, 200, 10_000} {
		b.Run(fmt.Sprint(cursors, "-others"), func(b *testing.B) {
			value := []byte("node-000" + string(make([]byte, 400)))
			c := newCache(b, filled(10_000, func(int) []byte { return value }), nil)
			config := podConfig()
			config.Codec = nodeCodec{}
			r := c.Resource(config)
			at := snapshot(b, r, 0).Revision()
			stop := waitingCursors(b, r, at, cursors, func(i int) Interest {
				return Interest{Index: "node", Value: fmt.Sprintf("other%d", i)}
			}, nil)
			defer stop()
			changes := make([]storage.Event, 1)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at++
				changes[0].Entry = storage.Entry{
					Key: fmt.Sprintf("%sdefault/object-%07d", podPrefix, i*7919%10_000), Value: value, ModRevision: at,
					CreateRevision: 1,
				}
				r.receive(changes, at)
			}
		})
	}
}

// waitingCursors opens n cursors and returns when all of them wait for an event. They count their events in
// delivered. stop closes them.
func waitingCursors(
	tb testing.TB, r *Resource, from int64, n int, in func(i int) Interest, delivered *atomic.Int64,
) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range n {
		c, err := r.Watch(ctx, from, in(i))
		if err != nil {
			tb.Fatal(err)
		}
		all.Go(func() {
			defer c.Close()
			for {
				events, _, err := c.Next(ctx)
				if err != nil {
					return
				}
				if delivered != nil {
					delivered.Add(int64(len(events)))
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// BenchmarkFanOut measures from the arrival of an event to its delivery to all cursors.
func BenchmarkFanOut(b *testing.B) {
	for _, batch := range []int{1, 16} {
		for _, cursors := range []int{200, 10_000} {
			b.Run(fmt.Sprint(cursors, "-cursors/batch-", batch), func(b *testing.B) {
				value := []byte("node-000" + string(make([]byte, 400)))
				c := newCache(b, filled(10_000, func(int) []byte { return value }), nil)
				config := podConfig()
				config.Codec = nodeCodec{}
				r := c.Resource(config)
				at := snapshot(b, r, 0).Revision()
				var delivered atomic.Int64
				stop := waitingCursors(b, r, at, cursors, func(int) Interest { return Interest{} }, &delivered)
				defer stop()
				changes := make([]storage.Event, batch)
				want := int64(0)
				for i := 0; b.Loop(); i++ {
					for j := range changes {
						at++
						changes[j].Entry = storage.Entry{
							Key: fmt.Sprintf("%sdefault/object-%07d", podPrefix, i*7919%10_000), Value: value, ModRevision: at,
							CreateRevision: 1,
						}
					}
					r.receive(changes, at)
					want += int64(cursors * batch)
					for delivered.Load() < want {
						runtime.Gosched()
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(want), "ns/delivery")
			})
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// BenchmarkMemory reports the memory of an object without its data, and of a waiting cursor without its goroutine. The
// time of the benchmark has no meaning.
func BenchmarkMemory(b *testing.B) {
	const objects, cursors = 100_000, 10_000
	value := []byte("node-000" + string(make([]byte, 200)))
	labels := []Label{{"app", "x"}}
	s := filled(objects, func(i int) []byte { return value })
	for range b.N {
		c := New(Options{Store: s})
		config := podConfig()
		config.Codec = plainCodec{labels}
		config.Indexes = nil
		r := c.Resource(config)
		<-c.feed.started
		before := heap()
		snapshot(b, r, 0)
		loaded := heap()
		b.ReportMetric(float64(loaded-before)/objects, "B/object")

		ctx, cancel := context.WithCancel(context.Background())
		ready, all := new(sync.WaitGroup), new(sync.WaitGroup)
		bare := make(chan struct{})
		for range cursors {
			ready.Add(1)
			all.Go(func() {
				ready.Done()
				select {
				case <-bare:
				case <-ctx.Done():
				}
			})
		}
		ready.Wait()
		goroutines := heap()
		close(bare)
		all.Wait()
		before = heap()
		stop := waitingCursors(b, r, c.Applied(), cursors, func(i int) Interest {
			return Interest{Namespace: "default", Name: fmt.Sprint("object-", i)}
		}, nil)
		for r.waiting() < cursors {
			runtime.Gosched()
		}
		b.ReportMetric(float64(heap()-before)/cursors, "B/cursor+goroutine")
		b.ReportMetric(float64(goroutines-loaded)/cursors, "B/goroutine")
		stop()
		cancel()
		c.Close()
	}
}

// waiting returns the number of postings for which a cursor waits.
func (r *Resource) waiting() (n int) {
	r.published.mu.RLock()
	defer r.published.mu.RUnlock()
	r.published.interests.Each(func(p *interest.Posting[wakeup]) {
		if p.User.ch.Load() != nil {
			n++
		}
	})
	return n
}

func BenchmarkViewAt(b *testing.B) {
	c, r, s := benchResource(b, 100_000)
	value := string(make([]byte, 400))
	for i := range 10_000 {
		put(b, c.store, fmt.Sprintf("default/object-%07d", i*7919%100_000), value)
	}
	if err := c.Await(b.Context(), s.Revision()+10_000); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := r.ViewAt(context.Background(), s.Revision()+9_500); err != nil {
			b.Fatal(err)
		}
	}
}
