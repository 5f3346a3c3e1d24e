package cache

import "sync"

// rests remembers how many objects follow the pages of lists. The number after a page is that after the page before
// it, minus the objects of the page, so a page that is read from the store need not count them.
type rests struct {
	mu     sync.Mutex // guards what follows
	counts map[restKey]int64
	oldest []restKey // in the order in which they came
}

// restKey identifies the rest of a list: the keys with a prefix from a key on, at a revision.
type restKey struct {
	revision     int64
	prefix, from string // whole keys of the store
}

// maxRests is the highest number of remembered pages.
const maxRests = 1024

func (m *rests) get(k restKey) (int64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.counts[k]
	return n, ok
}

func (m *rests) put(k restKey, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		m.counts = make(map[restKey]int64)
	}
	if _, ok := m.counts[k]; !ok {
		if len(m.oldest) >= maxRests {
			delete(m.counts, m.oldest[0])
			m.oldest = m.oldest[1:]
		}
		m.oldest = append(m.oldest, k)
	}
	m.counts[k] = n
}
