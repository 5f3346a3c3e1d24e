package tokencache

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/auth/authn"
)

// Recent remembers for a while what another authenticator said, so that it is asked
// once for a token that comes often. Those who ask for the same token at the same
// time wait for one answer.
//
// Errors are not remembered: they may be of the way to the answer.
type Recent struct {
	tokens           authn.TokenAuthenticator
	success, failure time.Duration
	now              func() time.Time
	count            Counter
	known            *Cache[answer]

	mu     sync.Mutex // guards asking
	asking map[Key]*question
}

// answer is what was said of a token.
type answer struct {
	identity *authn.Identity // nil: nobody's
	until    time.Time
}

// question is one that is being asked.
type question struct {
	done     chan struct{} // closed when what follows is set
	identity *authn.Identity
	err      error
	panicked any // what the authenticator panicked with, nil if it did not
}

// recentSize is how many answers are remembered at least.
const recentSize = 4096

// NewRecent remembers whose a token is for success, and that it is nobody's for
// failure; 0 does not.
func NewRecent(tokens authn.TokenAuthenticator, success, failure time.Duration, now func() time.Time, count Counter) *Recent {
	return &Recent{tokens: tokens, success: success, failure: failure, now: now, count: count, known: New[answer](recentSize), asking: map[Key]*question{}}
}

// AuthenticateToken implements authn.TokenAuthenticator.
func (r *Recent) AuthenticateToken(ctx context.Context, t authn.BearerToken, audiences []string) (*authn.Identity, error) {
	key := keyOf(t.Hash, audiences)
	if a, ok := r.known.Get(key); ok && r.now().Before(a.until) {
		r.count.Hit()
		return a.identity, nil
	}
	r.mu.Lock()
	q, asked := r.asking[key]
	if !asked {
		q = &question{done: make(chan struct{})}
		r.asking[key] = q
		// Others may wait for the answer when this request is gone.
		go r.ask(context.WithoutCancel(ctx), key, q, t, audiences)
	}
	r.mu.Unlock()
	select {
	case <-q.done:
		if q.panicked != nil {
			panic(q.panicked) // where it is answered and logged
		}
		return q.identity, q.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// longestQuestion bounds a question that nobody may wait for any more.
const longestQuestion = 30 * time.Second

func (r *Recent) ask(ctx context.Context, key Key, q *question, t authn.BearerToken, audiences []string) {
	ctx, cancel := context.WithTimeout(ctx, longestQuestion)
	defer cancel()
	defer func() {
		q.panicked = recover()
		r.mu.Lock()
		delete(r.asking, key)
		r.mu.Unlock()
		close(q.done)
	}()
	q.identity, q.err = r.tokens.AuthenticateToken(ctx, t, audiences)
	r.count.Miss(q.err == nil)
	keep := r.success
	if q.identity == nil {
		keep = r.failure
	}
	if q.err == nil && keep > 0 {
		r.known.Put(key, answer{q.identity, r.now().Add(keep)})
	}
}

// keyOf is the hash of a token and of the audiences that it is to be meant for.
func keyOf(token Key, audiences []string) Key {
	h := sha256.New()
	h.Write(token[:])
	var length [8]byte
	for _, audience := range audiences {
		binary.BigEndian.PutUint64(length[:], uint64(len(audience)))
		h.Write(length[:])
		h.Write([]byte(audience))
	}
	return Key(h.Sum(nil))
}
