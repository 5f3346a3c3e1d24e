package tokencache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// oracle is an authenticator that counts its calls.
type oracle struct {
	asked atomic.Int64
	say   func(token string) (*authn.Identity, error)
}

func (o *oracle) AuthenticateToken(_ context.Context, t authn.BearerToken, _ []string) (*authn.Identity, error) {
	o.asked.Add(1)
	return o.say(t.Text)
}

func TestAuthenticatorCachesForAWhile(t *testing.T) {
	now := time.Unix(1000, 0)
	jane := &authn.Identity{User: &request.User{Name: "jane"}}
	failed := errors.New("no answer")
	o := &oracle{say: func(token string) (*authn.Identity, error) {
		switch token {
		case "jane":
			return jane, nil
		case "broken":
			return nil, failed
		}
		return nil, nil
	}}
	recorder := NewMetrics(metrics.New(nil, metrics.Options{}))
	r := NewAuthenticator(o, 10*time.Second, 5*time.Second, func() time.Time { return now }, recorder)
	for _, step := range []struct {
		after    time.Duration
		token    string
		audience string
		asked    int64 // in all
	}{
		{0, "jane", "a", 1}, {9 * time.Second, "jane", "a", 1}, {0, "jane", "b", 2}, {2 * time.Second, "jane", "a", 3},
		{0, "nobody", "a", 4}, {4 * time.Second, "nobody", "a", 4}, {2 * time.Second, "nobody", "a", 5},
		{0, "broken", "a", 6}, {0, "broken", "a", 7},
	} {
		now = now.Add(step.after)
		identity, err := r.AuthenticateToken(t.Context(), authn.NewBearerToken(step.token), []string{step.audience})
		if (identity == jane) != (step.token == "jane") || (err != nil) != (step.token == "broken") ||
			o.asked.Load() != step.asked {
			t.Errorf("%+v: %v %v, asked %d times", step, identity, err, o.asked.Load())
		}
	}
}

func TestConcurrentCallsShareOneResult(t *testing.T) {
	release := make(chan struct{})
	o := &oracle{say: func(string) (*authn.Identity, error) {
		<-release
		return &authn.Identity{User: &request.User{Name: "jane"}}, nil
	}}
	r := NewAuthenticator(o, time.Hour, 0, time.Now, NewMetrics(metrics.New(nil, metrics.Options{})))
	token := authn.NewBearerToken("x")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	// The request that asked first is cancelled; the others must still get the result.
	if _, err := r.AuthenticateToken(gone, token, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if identity, err := r.AuthenticateToken(t.Context(), token, nil); identity == nil {
				t.Error(err)
			}
		})
	}
	close(release)
	all.Wait()
	if n := o.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestPanicAffectsOneRequestOnly checks that a panic of the authenticator does not end the server.
func TestPanicAffectsOneRequestOnly(t *testing.T) {
	r := NewAuthenticator(&oracle{say: func(string) (*authn.Identity, error) { panic("boom") }}, time.Hour, 0, time.Now,
		NewMetrics(metrics.New(nil, metrics.Options{})))
	defer func() {
		if got := recover(); got != "boom" {
			t.Errorf("recovered %v", got)
		}
	}()
	identity, err := r.AuthenticateToken(t.Context(), authn.NewBearerToken("x"), nil)
	t.Errorf("%v %v", identity, err)
}
