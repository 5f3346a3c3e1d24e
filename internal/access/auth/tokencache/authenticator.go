package tokencache

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
)

// Authenticator caches the results of another token authenticator for some time. Concurrent
// calls for the same token wait for one call of that authenticator. Errors are not cached:
// they may be temporary, such as network errors.
type Authenticator struct {
	tokens           authn.TokenAuthenticator
	success, failure time.Duration
	now              func() time.Time
	record           Recorder
	cache            *Cache[result]
	calls            singleflight.Group // by key
}

// result is a cached result.
type result struct {
	identity *authn.Identity // nil: the token is not valid
	until    time.Time
}

// answer is the result of a call of the wrapped authenticator.
type answer struct {
	identity *authn.Identity
	panicked any // the value of its panic; nil if it did not panic
}

// cacheSize is the least number of results that are cached.
const cacheSize = 4096

// NewAuthenticator returns an Authenticator that caches users for the time success, and invalid tokens for the
// time failure. A time of 0 means that they are not cached.
func NewAuthenticator(
	tokens authn.TokenAuthenticator, success, failure time.Duration, now func() time.Time, record Recorder,
) *Authenticator {
	return &Authenticator{tokens: tokens, success: success, failure: failure, now: now, record: record,
		cache: New[result](cacheSize)}
}

// AuthenticateToken implements authn.TokenAuthenticator.
func (au *Authenticator) AuthenticateToken(
	ctx context.Context, t authn.BearerToken, audiences []string,
) (*authn.Identity, error) {
	start := time.Now()
	key := keyOf(t.Hash, audiences)
	if a, ok := au.cached(key); ok {
		au.record.Requested(true, start)
		return a.identity, nil
	}
	defer au.record.Requested(false, start)
	defer au.record.Waiting()()
	calls := au.calls.DoChan(string(key[:]), func() (any, error) {
		if a, ok := au.cached(key); ok { // a call ended since the look above
			return answer{identity: a.identity}, nil
		}
		// Other requests may wait for this call after this request has ended.
		return au.authenticate(context.WithoutCancel(ctx), key, t, audiences)
	})
	select {
	case called := <-calls:
		a := called.Val.(answer)
		if a.panicked != nil {
			panic(a.panicked) // on the goroutine of the request, where internal/gateway/filter/recovery handles it
		}
		return a.identity, called.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// callTimeout limits a call, which goes on after the requests that wait for it have ended.
const callTimeout = 30 * time.Second

// cached returns the result for a token if it is kept and still valid.
func (au *Authenticator) cached(key Key) (result, bool) {
	a, ok := au.cache.Get(key)
	return a, ok && au.now().Before(a.until)
}

func (au *Authenticator) authenticate(
	ctx context.Context, key Key, t authn.BearerToken, audiences []string,
) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	defer func() { a.panicked = recover() }()
	done := au.record.Fetching()
	defer func() { done(err == nil && a.panicked == nil) }()
	a.identity, err = au.tokens.AuthenticateToken(ctx, t, audiences)
	keep := au.success
	if a.identity == nil {
		keep = au.failure
	}
	if err == nil && keep > 0 {
		au.cache.Put(key, result{a.identity, au.now().Add(keep)})
	}
	return a, err
}

// keyOf returns a hash of the token and the audiences.
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
