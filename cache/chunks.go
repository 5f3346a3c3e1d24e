package cache

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/keelson-dev/keelson/cache/index"
)

// Group is some neighbours of a Snapshot, in key order. What was made of all of them
// together, such as their text compressed, can be kept with those that stand in one
// leaf of the tree: a change of any of them makes another leaf.
type Chunk struct {
	Objects []*Object // must not be changed
	cached  *index.LeafCache
}

// Groups yields the objects of Ascend in groups of up to some dozens, until yield
// returns false.
func (s Snapshot) Chunks(from, prefix string, yield func(Chunk) bool) {
	s.objects.All().Leaves(from, prefix, func(objects []*Object, note *index.LeafCache) bool {
		return yield(Chunk{objects, note})
	})
}

// GroupForm is Form for what is made of a group. Nothing is kept of a group that is
// only a part of a leaf.
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

// AskedAgain says whether groups were asked for as this form before, and not long
// ago, and notes that they are now.
func (r *Resource) NoteRequest(id EncodingID) bool {
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

// asked notes the forms that groups were asked for.
type requestLog struct {
	mu                sync.Mutex // guards now and before
	current, previous []EncodingID
}

// forget leaves what was asked for since the last call.
func (a *requestLog) rotate() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current, a.previous = nil, a.current
}

// unusedAfter is for how long forms of objects and groups are kept that nobody asks
// for, within a factor of two.
const unusedAfter = 5 * time.Minute

// groups bounds what is kept with groups and forgets what is not used. A group goes
// with the last tree that has its leaf, so that a change costs no search here: the
// clock has but weak pointers, and what a group was charged is given back once the
// collector has found it.
type chunkBudget struct {
	limit int64
	used  atomic.Int64

	mu    sync.Mutex // guards clock and what changes in groups
	clock []weak.Pointer[cachedChunk]
}

type cachedChunk struct {
	encodings atomic.Pointer[[]encoded]
	used      atomic.Bool // used since the clock last came by
	// queued says that the clock knows it. Guarded by groups.mu.
	queued bool
	charge *atomic.Int64 // of its forms in groups.used
}

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

// add keeps a form of the group at note, unless it is there already.
func (b *chunkBudget) add(cache *index.LeafCache, id EncodingID, data []byte) {
	cost := int64(len(data)) + encodingOverhead
	if cost > b.limit/4 {
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
	var list []encoded
	if old := c.encodings.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = append(list, encoded{id, data})
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

func (b *chunkBudget) newChunk() *cachedChunk {
	c := &cachedChunk{charge: new(atomic.Int64)}
	runtime.AddCleanup(c, func(charge *atomic.Int64) { b.used.Add(-charge.Swap(0)) }, c.charge)
	return c
}

// expire forgets the groups that were not used since it, or pass, last came by.
func (b *chunkBudget) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetUnused(-1)
}

// pass goes over the clock, the oldest first, and forgets groups that were not used
// since it last came by until no more than target is used. It goes round once, so
// that others stay until the next time. The caller holds mu.
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
