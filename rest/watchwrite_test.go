package rest

import (
	"errors"
	"net/http"
	"runtime"
	"testing"
	"weak"

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/rest/negotiate"
	"github.com/keelson-dev/keelson/scheme"
)

// waitingWriter is the connection of a client that does not read. While a write waits, it looks whether the object is
// still in memory.
type waitingWriter struct {
	http.ResponseWriter
	object  weak.Pointer[cache.Object]
	writes  int
	longest int
	kept    bool
	budget  int64
}

func (w *waitingWriter) Write(b []byte) (int, error) {
	w.writes++
	w.longest = max(w.longest, cap(b))
	runtime.GC()
	runtime.GC()
	w.kept = w.kept || w.object.Value() != nil
	return len(b), nil
}

func (w *waitingWriter) Hold(n int64) bool { w.budget -= n; return w.budget >= 0 }
func (w *waitingWriter) Charge(int64)      {}
func (w *waitingWriter) ReleaseMemory()    {}

// TestStalledWatchHoldsNoObject sends a large object that the cache drops while the first piece waits for the client.
// The watch must not keep it in memory, and must end.
func TestStalledWatchHoldsNoObject(t *testing.T) {
	w := &waitingWriter{}
	st := &watchStream{s: newShelf(t).pods(), w: w, accepted: negotiate.Accepted{Media: scheme.Protobuf}}
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
	st := &watchStream{s: newShelf(t).pods(), w: w, accepted: negotiate.Accepted{Media: scheme.Protobuf}}
	o := &cache.Object{Data: make([]byte, 300<<10)}
	rest, err := st.append(t.Context(), nil, modified, o)
	if err != nil || w.writes != (st.appended)/watchChunk || len(rest) != st.appended%watchChunk {
		t.Errorf("%d bytes in %d writes, %d remain, %v", st.appended, w.writes, len(rest), err)
	}
	runtime.KeepAlive(o)
}
