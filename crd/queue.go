package crd

import (
	"context"
	"sync"
)

// queue holds the names of definitions to look at, each at most once.
type queue struct {
	mu     sync.Mutex
	names  map[string]bool
	order  []string
	filled chan struct{} // has room for one
}

func newQueue() *queue {
	return &queue{names: map[string]bool{}, filled: make(chan struct{}, 1)}
}

func (q *queue) add(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.names[name] {
		return
	}
	q.names[name] = true
	q.order = append(q.order, name)
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// next waits for a name; "" is the end.
func (q *queue) next(ctx context.Context) string {
	for {
		q.mu.Lock()
		if len(q.order) > 0 {
			name := q.order[0]
			q.order = q.order[1:]
			delete(q.names, name)
			q.mu.Unlock()
			return name
		}
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			return ""
		case <-q.filled:
		}
	}
}
