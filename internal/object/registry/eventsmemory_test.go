package registry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/api/write/writetest"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// TestEventsStayOutOfMemory creates many Events. Meanwhile a watcher watches all of them, and clients sometimes
// get one, change one, or list all of them in pages. The heap has to stay far below the size of the Events. With
// KEELSON_LONG there are 500,000 Events, the sizes are those of a server, and the limit is 60 MB.
func TestEventsStayOutOfMemory(t *testing.T) {
	const writers = 64
	events, bound := 30_000, uint64(12<<20)
	memory := cache.Memory{SmallObjects: 100, SmallBytes: 256 << 10, UnreadBytes: 1 << 20, LogBytes: 1 << 20}
	engine := embedded.Options{Dir: t.TempDir(), RingBytes: 256 << 10, CacheBytes: 1 << 20, MemTableBytes: 256 << 10}
	if os.Getenv("KEELSON_LONG") != "" {
		events, bound = 500_000, 60_000_000
		memory, engine = cache.Memory{}, embedded.Options{Dir: engine.Dir}
	}
	store, err := embedded.Open(engine)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c := cache.New(cache.Options{Store: store, Memory: memory})
	defer c.Close()
	all, err := registry.New(resource.Kinds(features.Gates{}), store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	r := all.Resource(corev1.Resource("events"))
	before := liveHeap()
	peak := uint64(0)
	look := func(when string) {
		heap := liveHeap() - before
		peak = max(peak, heap)
		t.Logf("%s: %.1f MB of heap", when, float64(heap)/1e6)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	var seen atomic.Int64
	from, err := r.Reader.CurrentRevision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	watching.Go(func() {
		cursor, err := r.Reader.Watch(ctx, from, cache.Interest{})
		if err != nil {
			t.Error(err)
			return
		}
		defer cursor.Close()
		for {
			found, _, err := cursor.Next(ctx)
			if seen.Add(int64(len(found))); err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
		}
	})
	const parts = 10
	for part := range parts {
		var writing sync.WaitGroup
		for w := range writers {
			writing.Go(func() {
				for i := part*events/parts + w; i < (part+1)*events/parts; i += writers {
					if err := createEvent(ctx, r, i); err != nil {
						t.Error(err)
						return
					}
					if i%100 == 0 {
						touchEvent(ctx, t, r, i, i%300 == 0)
					}
				}
			})
		}
		writing.Wait()
		look(fmt.Sprintf("%d Events", (part+1)*events/parts))
	}
	paged := 0
	for start, more := "", true; more; {
		view, err := r.Reader.Current(ctx)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := view.Ascend(ctx, start, "", 501, func(o *cache.Object) bool {
			if n++; n > 500 {
				return false
			}
			start = o.Key + "\x00"
			return true
		}); err != nil {
			t.Fatal(err)
		}
		more = n > 500
		paged += min(n, 500)
	}
	look("after a list in pages")
	if paged != events {
		t.Errorf("%d of %d Events are listed", paged, events)
	}
	if n, ok := r.Reader.Counted(); !ok || n != events || r.Reader.Loaded() {
		t.Errorf("%d counted (%v), loaded: %v", n, ok, r.Reader.Loaded())
	}
	for end := time.Now().Add(time.Minute); seen.Load() < int64(events); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the watcher has seen %d of %d Events", seen.Load(), events)
		}
	}
	cancel()
	watching.Wait()
	if peak > bound {
		t.Errorf("%d bytes of heap for %d Events, more than %d", peak, events, bound)
	}
}

// liveHeap returns the bytes of the heap that are in use after a garbage collection.
func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func createEvent(ctx context.Context, r *registry.Resource, i int) error {
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d.17f3c4", i), Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("pod-%d", i), UID: "6d0f6b2c-8f0e-4c55-9d52-1e5f0a0a7c11",
		},
		Reason: "Scheduled", Message: strings.Repeat("Successfully assigned default/pod to node. ", 6),
		Source: corev1.EventSource{Component: "default-scheduler"}, Type: "Normal", Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
	}
	_, err := writer.Create(ctx, r, "default", e, writetest.Options{})
	return err
}

// touchEvent reads an Event or changes it.
func touchEvent(ctx context.Context, t *testing.T, r *registry.Resource, i int, change bool) {
	name := fmt.Sprintf("pod-%d.17f3c4", i)
	if change {
		if _, err := writer.Update(ctx, r, nil, "default", name, writetest.Options{},
			func(c *write.Current) (registry.Object, error) {
				obj := c.Copy()
				obj.(*corev1.Event).Count++
				return obj, nil
			}); err != nil {
			t.Error(err)
		}
		return
	}
	view, err := r.Reader.Current(ctx)
	if err == nil {
		if _, ok, found := view.Get(ctx, r.Key("default", name)); !ok {
			err = errors.Join(found, errors.New("it is not there"))
		}
	}
	if err != nil {
		t.Errorf("get %s: %v", name, err)
	}
}
