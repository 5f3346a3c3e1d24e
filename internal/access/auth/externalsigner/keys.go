package externalsigner

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/serviceaccount"
)

// retryInterval is the time until keys are fetched again after an error.
const retryInterval = 10 * time.Second

// keySet is the result of one call of FetchKeys. It is immutable.
type keySet struct {
	keys []serviceaccount.PublicKey
	// dataTime is the time at which the program got the keys, refreshAt the time to fetch them again.
	dataTime, refreshAt time.Time
	// generation is incremented whenever a key was withdrawn.
	generation uint64
}

// keys keeps the last keySet. At most one fetch runs at a time; all callers wait for it.
type keys struct {
	fetch   func(context.Context) (*keySet, error)
	now     func() time.Time
	current atomic.Pointer[keySet] // nil before the first fetch
	flight  singleflight.Group
}

// find returns the keys with an ID, or all keys if id is "".
func (k *keys) find(id string) []serviceaccount.PublicKey {
	all := k.current.Load().keys
	if id == "" {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(key serviceaccount.PublicKey) bool { return key.ID != id })
}

// refresh fetches the keys. It returns when that is done, or when ctx is done.
func (k *keys) refresh(ctx context.Context) error {
	answer := k.flight.DoChan("", func() (any, error) {
		// Other callers may wait for this fetch after ctx is done.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		set, err := k.fetch(ctx)
		if err != nil {
			return nil, fmt.Errorf("while fetching token verification keys: %w", err)
		}
		if before := k.current.Load(); before != nil {
			set.generation = before.generation
			if hasWithdrawn(before.keys, set.keys) {
				set.generation++
			}
		}
		k.current.Store(set)
		return nil, nil
	})
	select {
	case r := <-answer:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hasWithdrawn reports whether a key of before is missing in now.
func hasWithdrawn(before, now []serviceaccount.PublicKey) bool {
	return slices.ContainsFunc(before, func(old serviceaccount.PublicKey) bool {
		return !slices.ContainsFunc(now, func(key serviceaccount.PublicKey) bool {
			return key.ID == old.ID && key.Equal(old)
		})
	})
}

// refreshUntilDone fetches the keys at the times that the program requests, until ctx is done.
func (k *keys) refreshUntilDone(ctx context.Context, failed func(error)) {
	wait := k.current.Load().refreshAt.Sub(k.now())
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if err := k.refresh(ctx); err != nil {
			if ctx.Err() == nil {
				failed(err)
			}
			wait = retryInterval
			continue
		}
		wait = k.current.Load().refreshAt.Sub(k.now())
	}
}

// fetchKeys fetches the keys and records the call in the metrics. A response that is not valid is an error.
func (s *Signer) fetchKeys(ctx context.Context) (*keySet, error) {
	set, err := s.callFetchKeys(ctx)
	s.metrics.fetched(err, s.keys.now())
	if err == nil {
		s.metrics.dataTimestamp(set.dataTime)
	}
	return set, err
}

func (s *Signer) callFetchKeys(ctx context.Context) (*keySet, error) {
	response, err := s.client.FetchKeys(ctx, &externaljwt.FetchKeysRequest{})
	if err != nil {
		return nil, fmt.Errorf("while getting externally supported jwt signing keys: %w", err)
	}
	seconds := response.GetRefreshHintSeconds()
	if seconds <= 0 {
		return nil, fmt.Errorf("found invalid refresh hint (%ds)", seconds)
	}
	if len(response.GetKeys()) == 0 {
		return nil, errors.New("found no keys")
	}
	if err := response.GetDataTimestamp().CheckValid(); err != nil {
		return nil, fmt.Errorf("invalid data timestamp: %w", err)
	}
	seconds = min(seconds, int64(maxDuration/time.Second))
	set := &keySet{dataTime: response.GetDataTimestamp().AsTime(),
		refreshAt: s.keys.now().Add(time.Duration(seconds) * time.Second)}
	for _, key := range response.GetKeys() {
		key, err := readKey(key)
		if err != nil {
			return nil, err
		}
		set.keys = append(set.keys, key)
	}
	return set, nil
}

func readKey(key *externaljwt.Key) (serviceaccount.PublicKey, error) {
	var none serviceaccount.PublicKey
	if id := key.GetKeyId(); id == "" || len(id) > maxKeyIDLength {
		return none, fmt.Errorf("found invalid public key id %q", id)
	}
	if len(key.GetKey()) == 0 {
		return none, errors.New("found empty public key")
	}
	parsed, err := x509.ParsePKIXPublicKey(key.GetKey())
	if err != nil {
		return none, fmt.Errorf("while parsing external public keys: %w", err)
	}
	public, err := serviceaccount.NewPublicKey(key.GetKeyId(), parsed)
	if err != nil {
		return none, fmt.Errorf("while parsing external public keys: %w", err)
	}
	public.Unpublished = key.GetExcludeFromOidcDiscovery()
	return public, nil
}
