package quota

import (
	"context"
	"sync"
)

// accounts has an account for each namespace in which a write is being charged.
type accounts struct {
	mu          sync.Mutex // guards byNamespace and the field users of all accounts
	byNamespace map[string]*account
}

// account makes the charged writes of a namespace take turns.
type account struct {
	namespace string
	users     int
	turn      chan struct{} // capacity 1; full while a write has the turn
	// known are the latest quotas by their keys, from writes of this process or from conflicts. Only the write that has
	// the turn uses it.
	known map[string]held
}

// enter waits for the turn in a namespace. The caller has to call leave.
func (ac *accounts) enter(ctx context.Context, namespace string) (*account, error) {
	ac.mu.Lock()
	a := ac.byNamespace[namespace]
	if a == nil {
		a = &account{namespace: namespace, turn: make(chan struct{}, 1), known: map[string]held{}}
		ac.byNamespace[namespace] = a
	}
	a.users++
	ac.mu.Unlock()
	select {
	case a.turn <- struct{}{}:
		return a, nil
	case <-ctx.Done():
		ac.forget(a)
		return nil, ctx.Err()
	}
}

// leave gives the turn to the next one.
func (ac *accounts) leave(a *account) {
	<-a.turn
	ac.forget(a)
}

// forget drops the account if no write uses it any more.
func (ac *accounts) forget(a *account) {
	ac.mu.Lock()
	defer ac.mu.Unlock()
	if a.users--; a.users == 0 {
		delete(ac.byNamespace, a.namespace)
	}
}
