package rest

import (
	"errors"
	"math/rand"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// waitingWriter is the connection of a client that does not read. While a write waits, it looks whether the object is
// still in memory.
type waitingWriter struct {
	http.ResponseWriter
	object   weak.Pointer[cache.Object]
	writes   int
	longest  int
	kept     bool
	budget   int64
	released int
}

func (w *waitingWriter) Write(b []byte) (int, error) {
	w.writes++
	w.longest = max(w.longest, cap(b))
	runtime.GC()
	runtime.GC()
	w.kept = w.kept || w.object.Value() != nil
	return len(b), nil
}

func (w *waitingWriter) Hold(n int64) bool  { w.budget -= n; return w.budget >= 0 }
func (w *waitingWriter) Charge(int64)       {}
func (w *waitingWriter) ReleaseMemory()     { w.released++ }
func (w *waitingWriter) Keep(int64) bool    { return true }
func (w *waitingWriter) InitialEventsSent() {}

// TestStalledWatchHoldsNoObject sends a large object that the cache drops while the first piece waits for the client.
// The watch must not keep it in memory, and must end.
func TestStalledWatchHoldsNoObject(t *testing.T) {
	w := &waitingWriter{}
	st := &watchStream{s: newShelf(t).pods(), w: w, out: w, response: w, accepted: negotiate.Accepted{Media: scheme.Protobuf}}
	o := &cache.Object{Data: make([]byte, 300<<10)}
	w.object = weak.Make(o)
	_, err := st.append(t.Context(), nil, modified, o)
	if !errors.Is(err, errLost) || w.writes != 1 {
		t.Errorf("%d writes, %v; want one and errLost", w.writes, err)
	}
	if w.kept {
		t.Error("the object is in memory while the write waits")
	}
	if w.longest > watchChunk+largeText {
		t.Errorf("a write of %d bytes", w.longest)
	}
}

// TestLargeEventsArePieces sends a large object that stays in memory.
func TestLargeEventsArePieces(t *testing.T) {
	w := &waitingWriter{}
	st := &watchStream{s: newShelf(t).pods(), w: w, out: w, response: w, accepted: negotiate.Accepted{Media: scheme.Protobuf}}
	o := &cache.Object{Data: make([]byte, 300<<10)}
	rest, err := st.append(t.Context(), nil, modified, o)
	if err != nil || w.writes != (st.appended)/watchChunk || len(rest) != st.appended%watchChunk {
		t.Errorf("%d bytes in %d writes, %d remain, %v", st.appended, w.writes, len(rest), err)
	}
	runtime.KeepAlive(o)
}

// deadlines is the connection of a client. It records the write deadlines that are set.
type deadlines struct {
	waitingWriter
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// TestInitialEventsAreBounded writes initial events that are not in memory. Each write has a deadline, which is
// removed after the last initial event. The memory that the watch holds until then is counted for its user, once.
func TestInitialEventsAreBounded(t *testing.T) {
	shelf := newShelf(t)
	shelf.put(t, variedPods(rand.New(rand.NewSource(1)), 10))
	s := shelf.podsOfStore(t)
	view, err := s.Resource.Reader.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if view.Loaded() {
		t.Fatal("the pods are in memory")
	}
	chunk := make([]byte, watchChunk)

	w := &deadlines{}
	st := &watchStream{s: s, w: w, out: w, response: w, flusher: http.NewResponseController(w), initialView: view}
	if _, err := st.writeFull(chunk); !kerrors.IsTooManyRequests(err) || w.writes != 0 {
		t.Errorf("%d writes without memory, %v; want none and 429", w.writes, err)
	}

	const budget = 2 * initialMemory
	w = &deadlines{waitingWriter: waitingWriter{budget: budget}}
	st = &watchStream{s: s, w: w, out: w, response: w, flusher: http.NewResponseController(w), initialView: view}
	for range 3 {
		if _, err := st.writeFull(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if w.writes != 3 || w.budget != budget-initialMemory {
		t.Errorf("%d writes hold %d bytes, want 3 and %d", w.writes, budget-w.budget, initialMemory)
	}
	if len(w.set) != 3 || slices.ContainsFunc(w.set, time.Time.IsZero) || time.Until(w.set[2]) > initialStall {
		t.Errorf("deadlines %v, want one within %v for each write", w.set, initialStall)
	}
	st.initialSent()
	if len(w.set) != 4 || !w.set[3].IsZero() {
		t.Errorf("deadlines %v, want none after the initial events", w.set)
	}
	if _, err := st.writeFull(chunk); err != nil || len(w.set) != 4 {
		t.Errorf("deadlines %v after the initial events, %v", w.set, err)
	}
}

// TestUnkeptEventsAreCounted sends a large object that the cache does not refer to, as those of the history are.
// Its bytes are counted for the user while it is sent; without memory the event is refused.
func TestUnkeptEventsAreCounted(t *testing.T) {
	shelf := newShelf(t)
	const size = 300 << 10
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "large", Annotations: map[string]string{"note": strings.Repeat("x", size)},
	}}
	shelf.put(t, []*corev1.Pod{p})
	s := shelf.podsOfStore(t)
	view, err := s.Resource.Reader.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o, ok, err := view.Get(t.Context(), "default/large")
	if err != nil || !ok || o.IsKept() {
		t.Fatalf("found %v, %v", ok, err)
	}
	for _, c := range []struct {
		budget  int64
		refused bool
	}{{size, true}, {2 * size, false}} {
		w := &waitingWriter{budget: c.budget}
		st := &watchStream{s: s, w: w, out: w, response: w, accepted: negotiate.Accepted{Media: scheme.Protobuf}}
		_, err := st.append(t.Context(), nil, modified, o)
		if kerrors.IsTooManyRequests(err) != c.refused || (w.writes == 0) != c.refused || !c.refused && err != nil {
			t.Errorf("with %d bytes: %d writes, %v; want refused %v", c.budget, w.writes, err, c.refused)
		}
		if !c.refused && w.released != 1 {
			t.Errorf("the memory is released %d times, want once", w.released)
		}
	}
}
