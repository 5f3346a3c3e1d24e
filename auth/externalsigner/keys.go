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

	"github.com/keelson-dev/keelson/auth/serviceaccount"
)

// fetchAgain is when keys are asked for again that could not be had.
const fetchAgain = 10 * time.Second

// keySet are the keys that the program told at a time. It is not changed.
type keySet struct {
	keys []serviceaccount.PublicKey
	// data is when the program itself got the keys, refresh when it wants to be asked
	// again.
	data, refresh time.Time
	// generation counts the sets of which a key was withdrawn.
	generation uint64
}

// keys keeps what the program told. One question is on its way at a time, whoever
// has use for the answer.
type keys struct {
	fetch   func(context.Context) (*keySet, error)
	now     func() time.Time
	current atomic.Pointer[keySet] // nil before the first answer
	flight  singleflight.Group
}

// withID returns the keys of an ID, all for "".
func (k *keys) withID(id string) []serviceaccount.PublicKey {
	all := k.current.Load().keys
	if id == "" {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(key serviceaccount.PublicKey) bool { return key.ID != id })
}

// refresh asks for the keys, and waits for the answer until ctx ends.
func (k *keys) refresh(ctx context.Context) error {
	answer := k.flight.DoChan("", func() (any, error) {
		// Others may wait for the answer longer than ctx lasts.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTime)
		defer cancel()
		set, err := k.fetch(ctx)
		if err != nil {
			return nil, fmt.Errorf("while fetching token verification keys: %w", err)
		}
		if before := k.current.Load(); before != nil {
			set.generation = before.generation
			if withdrawn(before.keys, set.keys) {
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

// withdrawn says whether a key is no longer there.
func withdrawn(before, now []serviceaccount.PublicKey) bool {
	return slices.ContainsFunc(before, func(old serviceaccount.PublicKey) bool {
		return !slices.ContainsFunc(now, func(key serviceaccount.PublicKey) bool {
			return key.ID == old.ID && key.Equal(old)
		})
	})
}

// follow asks again whenever it is time to, until ctx ends.
func (k *keys) follow(ctx context.Context, failed func(error)) {
	wait := k.current.Load().refresh.Sub(k.now())
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
			wait = fetchAgain
			continue
		}
		wait = k.current.Load().refresh.Sub(k.now())
	}
}

// fetchKeys asks the program. What it must not answer is an error: the keys before
// stay in use.
func (s *Signer) fetchKeys(ctx context.Context) (*keySet, error) {
	set, err := s.askForKeys(ctx)
	s.metrics.fetched(err, s.keys.now())
	if err == nil {
		s.metrics.dataFrom(set.data)
	}
	return set, err
}

func (s *Signer) askForKeys(ctx context.Context) (*keySet, error) {
	answer, err := s.client.FetchKeys(ctx, &externaljwt.FetchKeysRequest{})
	if err != nil {
		return nil, fmt.Errorf("while getting externally supported jwt signing keys: %w", err)
	}
	seconds := answer.GetRefreshHintSeconds()
	if seconds <= 0 {
		return nil, fmt.Errorf("found invalid refresh hint (%ds)", seconds)
	}
	if len(answer.GetKeys()) == 0 {
		return nil, errors.New("found no keys")
	}
	if err := answer.GetDataTimestamp().CheckValid(); err != nil {
		return nil, fmt.Errorf("invalid data timestamp: %w", err)
	}
	seconds = min(seconds, int64(maxDuration/time.Second))
	set := &keySet{data: answer.GetDataTimestamp().AsTime(), refresh: s.keys.now().Add(time.Duration(seconds) * time.Second)}
	for _, told := range answer.GetKeys() {
		key, err := readKey(told)
		if err != nil {
			return nil, err
		}
		set.keys = append(set.keys, key)
	}
	return set, nil
}

func readKey(told *externaljwt.Key) (serviceaccount.PublicKey, error) {
	var none serviceaccount.PublicKey
	if id := told.GetKeyId(); id == "" || len(id) > maxKeyID {
		return none, fmt.Errorf("found invalid public key id %q", id)
	}
	if len(told.GetKey()) == 0 {
		return none, errors.New("found empty public key")
	}
	parsed, err := x509.ParsePKIXPublicKey(told.GetKey())
	if err != nil {
		return none, fmt.Errorf("while parsing external public keys: %w", err)
	}
	key, err := serviceaccount.NewPublicKey(told.GetKeyId(), parsed)
	if err != nil {
		return none, fmt.Errorf("while parsing external public keys: %w", err)
	}
	key.Unpublished = told.GetExcludeFromOidcDiscovery()
	return key, nil
}
