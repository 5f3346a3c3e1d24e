package cache

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// joined is the encoding of chunks in these tests: the keys and revisions of the objects.
func joined(g Chunk) string {
	var b strings.Builder
	for _, o := range g.Objects {
		fmt.Fprintf(&b, "%s@%d ", o.Key, o.Revision)
	}
	return b.String()
}

// chunkText returns the encodings of all chunks, and how many of them were made by this call.
func chunkText(t *testing.T, r *Resource, s Snapshot, from, prefix string, id EncodingID) (text string, made int) {
	t.Helper()
	s.Chunks(from, prefix, func(g Chunk) bool {
		part, err := r.EncodedChunk(g, id, func() ([]byte, error) { made++; return []byte(joined(g)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if string(part) != joined(g) {
			t.Fatalf("kept %q for %q", part, joined(g))
		}
		text += string(part)
		return true
	})
	return text, made
}

func objectsText(s Snapshot, from, prefix string) string {
	var all []*Object
	s.Ascend(from, prefix, func(o *Object) bool { all = append(all, o); return true })
	return joined(Chunk{Objects: all})
}

func TestChunksFollowChanges(t *testing.T) {
	const n = 1000
	s := newFakeStore()
	var last int64
	for i := range n {
		last = put(t, s, fmt.Sprintf("ns%d/p%04d", i%3, i), "node1|red|0")
	}
	c := newCache(t, s, nil)
	r := c.Resource(podConfig())
	snap := snapshot(t, r, last)
	if _, made := chunkText(t, r, snap, "", "", EncodingID(1)); made == 0 || made > n/8 {
		t.Fatalf("%d chunks of %d objects were made", made, n)
	}
	if _, made := chunkText(t, r, snap, "", "", EncodingID(1)); made != 0 {
		t.Errorf("%d chunks were made again", made)
	}
	if _, made := chunkText(t, r, snap, "", "", EncodingID(2)); made == 0 {
		t.Error("another encoding was there before it was made")
	}
	for i := range 200 {
		key := fmt.Sprintf("ns%d/p%04d", i%3, i*7919%n)
		if i%4 == 0 {
			last = remove(t, s, key)
		} else {
			last = put(t, s, key, fmt.Sprint("node1|red|", i))
		}
		snap := snapshot(t, r, last)
		text, made := chunkText(t, r, snap, "", "", EncodingID(1))
		if text != objectsText(snap, "", "") {
			t.Fatalf("change %d: the chunks are not the objects", i)
		}
		if made > 3 {
			t.Fatalf("change %d: %d chunks were made for one change", i, made)
		}
		for _, span := range [][2]string{{"ns1/p0333", ""}, {"", "ns1/"}, {"ns1/p0333", "ns1/"}, {"", "ns9/"}} {
			if text, _ := chunkText(t, r, snap, span[0], span[1], EncodingID(1)); text != objectsText(snap, span[0], span[1]) {
				t.Fatalf("change %d: from %q, prefix %q: the chunks are not the objects", i, span[0], span[1])
			}
		}
	}
	// The old snapshot still has its cached encodings.
	if text, made := chunkText(t, r, snap, "", "", EncodingID(1)); text != objectsText(snap, "", "") || made != 0 {
		t.Errorf("%d chunks of the first snapshot were made again", made)
	}
	if c.chunks.used.Load() == 0 {
		t.Error("nothing is charged")
	}
}

// TestUnusedChunksAreDropped checks that chunks that are not used are dropped, and that dropped chunks are not charged.
func TestUnusedChunksAreDropped(t *testing.T) {
	s := newFakeStore()
	var last int64
	for i := range 500 {
		last = put(t, s, fmt.Sprintf("ns/p%04d", i), "node1|red|0")
	}
	c := newCache(t, s, nil)
	r := c.Resource(podConfig())
	snap := snapshot(t, r, last)
	chunkText(t, r, snap, "", "", 1)
	c.chunks.expire() // resets the marks: the chunks count as unused until they are used again
	if _, made := chunkText(t, r, snap, "", "", 1); made != 0 {
		t.Errorf("%d used chunks were forgotten", made)
	}
	c.chunks.expire()
	c.chunks.expire()
	if used := c.chunks.used.Load(); used != 0 || len(c.chunks.clock) != 0 {
		t.Errorf("%d bytes are charged for nothing, %d chunks on the clock", used, len(c.chunks.clock))
	}
	_, made := chunkText(t, r, snap, "", "", 1)
	if made == 0 {
		t.Error("forgotten chunks are there")
	}
	// Every object is written again. The old chunks become garbage together with the last snapshot. (Some texts
	// are longer, because their revisions are longer.)
	before := c.chunks.used.Load()
	for i := range 500 {
		last = put(t, s, fmt.Sprintf("ns/p%04d", i), "node1|red|1")
	}
	snap = snapshot(t, r, last)
	chunkText(t, r, snap, "", "", 1)
	wait.Seen(t, "the unused chunks to be dropped", func() (bool, string) {
		runtime.GC()
		used := c.chunks.used.Load()
		return used <= before*5/4, fmt.Sprintf("%d bytes are charged, %d before", used, before)
	})
	runtime.KeepAlive(snap)
}

func TestChunksAreBounded(t *testing.T) {
	s := newFakeStore()
	var last int64
	for i := range 2000 {
		last = put(t, s, fmt.Sprintf("ns/p%04d", i), "node1|red|0")
	}
	const limit = 64 << 10
	c := newCache(t, s, func(o *Options) { o.EncodingBudget = limit })
	r := c.Resource(podConfig())
	snap := snapshot(t, r, last)
	var wg sync.WaitGroup
	for id := range EncodingID(4) {
		wg.Go(func() {
			for range 20 {
				if text, _ := chunkText(t, r, snap, "", "", id); text != objectsText(snap, "", "") {
					t.Error("the chunks are not the objects")
				}
			}
		})
	}
	wg.Wait()
	// Encodings that were used are dropped only when the clock passes them a second time.
	c.chunks.mu.Lock()
	c.chunks.forgetUnused(limit / 8)
	c.chunks.forgetUnused(limit / 8)
	c.chunks.mu.Unlock()
	if used := c.chunks.used.Load(); used > limit/8 {
		t.Errorf("%d bytes are kept, at most %d may be", used, limit/8)
	}
}

func TestNoteRequest(t *testing.T) {
	r := newCache(t, newFakeStore(), nil).Resource(podConfig())
	var got []bool
	for _, step := range []string{"ask", "ask", "forget", "ask", "forget", "forget", "ask"} {
		if step == "forget" {
			r.requests.rotate()
			continue
		}
		got = append(got, r.NoteRequest(3))
		if r.NoteRequest(4) && len(got) == 1 {
			t.Error("another encoding was asked for")
		}
	}
	if want := []bool{false, true, true, false}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
