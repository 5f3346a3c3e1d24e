package cache

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/keelson-dev/keelson/internal/storage/cache/index"
)

// Chunk is a few neighbouring objects of a Snapshot, in the order of their keys. An encoding of all of them together,
// such as their compressed text, can be cached if the chunk is a whole leaf of the tree. A change of one of the objects
// creates another leaf, so a cached encoding never has to be invalidated.
type Chunk struct {
	Objects []*Object // must not be changed
	cached  *index.LeafCache
}

// Chunks yields the objects of Ascend in chunks of up to 32, until yield returns false.
func (s Snapshot) Chunks(from, prefix string, yield func(Chunk) bool) {
	s.objects.All().Leaves(from, prefix, func(objects []*Object, leaf *index.LeafCache) bool {
		return yield(Chunk{objects, leaf})
	})
}

// EncodedChunk returns an encoding of a chunk: the cached one, or else the result of encode, which is cached. Nothing
// is cached for a chunk that is only a part of a leaf.
func (r *Resource) EncodedChunk(chunk Chunk, id EncodingID, encode func() ([]byte, error)) ([]byte, error) {
	if chunk.cached == nil {
		return encode()
	}
	if cached, ok := chunk.cached.Load().(*cachedChunk); ok {
		if data, ok := cached.encoding(id); ok {
			return data, nil
		}
	}
	data, err := encode()
	if err == nil {
		r.cache.chunks.add(chunk.cached, id, data)
	}
	return data, err
}

// NoteRequest records a request for chunks in an encoding. It reports whether there was a request for this
// encoding before: always if it was in the last five minutes, never if it was more than ten minutes ago.
func (r *Resource) NoteRequest(id EncodingID) bool {
	id = id.WithoutPeriod()
	log := &r.requests
	log.mu.Lock()
	defer log.mu.Unlock()
	again := slices.Contains(log.current, id)
	if !again {
		again = slices.Contains(log.previous, id)
		log.current = append(log.current, id)
	}
	return again
}

// requestLog has the encodings in which chunks were requested, for the current and the previous period of length
// unusedAfter.
type requestLog struct {
	mu                sync.Mutex // guards current and previous
	current, previous []EncodingID
}

// rotate begins a new period.
func (l *requestLog) rotate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current, l.previous = nil, l.current
}

// unusedAfter is the time after which unused encodings of objects and chunks are dropped. It may take up to twice
// this time.
const unusedAfter = 5 * time.Minute

// chunkBudget bounds the encodings of chunks, and drops those that are not used. A chunk is garbage when no tree
// has its leaf any more, so a change of an object does not have to find the chunks. Therefore the clock, the ring
// of chunks in which forgetUnused looks for unused ones, has only weak pointers. The bytes of a chunk are
// subtracted from used after the garbage collector has found the chunk.
type chunkBudget struct {
	limit int64
	used  atomic.Int64

	mu    sync.Mutex // guards clock and cachedChunk.queued
	clock []weak.Pointer[cachedChunk]
}

// cachedChunk is the encodings of one chunk.
type cachedChunk struct {
	encodings atomic.Pointer[[]encoded]
	used      atomic.Bool // used since forgetUnused last passed the chunk
	// queued means that the chunk is on the clock. Guarded by chunkBudget.mu.
	queued bool
	charge *atomic.Int64 // the bytes of its encodings that are included in chunkBudget.used
}

// encoding returns an encoding and marks the chunk as used, or returns false.
func (c *cachedChunk) encoding(id EncodingID) ([]byte, bool) {
	list := c.encodings.Load()
	if list == nil {
		return nil, false
	}
	for i := range *list {
		if (*list)[i].id == id {
			if !c.used.Load() {
				c.used.Store(true)
			}
			return (*list)[i].data, true
		}
	}
	return nil, false
}

// add caches an encoding of the chunk of a leaf, unless it is there already.
func (b *chunkBudget) add(cache *index.LeafCache, id EncodingID, data []byte) {
	if int64(len(data))+encodingOverhead > b.limit/4 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c, _ := cache.Load().(*cachedChunk)
	if c == nil {
		c = cache.LoadOrStore(b.newChunk()).(*cachedChunk)
	}
	if _, ok := c.encoding(id); ok {
		return
	}
	var before []encoded
	if old := c.encodings.Load(); old != nil {
		before = *old
	}
	list, cost := withEncoding(before, encoded{id, data})
	c.encodings.Store(&list)
	c.used.Store(true)
	c.charge.Add(cost)
	if !c.queued {
		c.queued = true
		b.clock = append(b.clock, weak.Make(c))
	}
	if b.used.Add(cost) > b.limit {
		b.forgetUnused(b.limit - b.limit/8)
	}
}

// newChunk returns a chunk. When the chunk is garbage collected, its bytes are subtracted from used.
func (b *chunkBudget) newChunk() *cachedChunk {
	c := &cachedChunk{charge: new(atomic.Int64)}
	runtime.AddCleanup(c, func(charge *atomic.Int64) { b.used.Add(-charge.Swap(0)) }, c.charge)
	return c
}

// expire drops the encodings of chunks that were not used since the last call of expire or forgetUnused.
func (b *chunkBudget) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetUnused(-1)
}

// forgetUnused goes over the clock, the oldest chunk first, and drops the encodings of chunks that were not used
// since it last passed them, until at most target bytes are used. It passes each chunk once, so used chunks stay
// until the next call. The caller holds mu.
func (b *chunkBudget) forgetUnused(target int64) {
	for n := len(b.clock); n > 0 && b.used.Load() > target; n-- {
		p := b.clock[0]
		b.clock = b.clock[1:]
		c := p.Value()
		switch {
		case c == nil:
		case c.used.Swap(false):
			b.clock = append(b.clock, p)
		default:
			c.encodings.Store(nil)
			c.queued = false
			b.used.Add(-c.charge.Swap(0))
		}
	}
}
