package console

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, begin := newPlaces(), time.Now()
		one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		take := func(address netip.Addr, want error, after time.Duration) {
			t.Helper()
			if err := p.take(t.Context(), address); !errors.Is(err, want) || time.Since(begin) != after {
				t.Errorf("%v after %v, want %v after %v", err, time.Since(begin), want, after)
			}
		}
		for range addressExchanges {
			take(one, nil, 0)
		}
		take(other, nil, 0) // one address does not block others
		p.free(other)
		take(one, errBusy, queueTime)

		// The wait ends when a place becomes free, and when the client goes away.
		go func() {
			time.Sleep(time.Second)
			p.free(one)
		}()
		take(one, nil, queueTime+time.Second)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.take(gone, one); err == nil {
			t.Error("a client that is gone gets a place")
		}

		// Many addresses take all places, and then as many others wait as are allowed.
		full := []netip.Addr{one, one}
		for a := netip.MustParseAddr("192.0.2.10"); len(full) < maxExchanges; a = a.Next() {
			take(a, nil, queueTime+time.Second)
			full = append(full, a)
		}
		results := make(chan error, maxQueue)
		for range maxQueue {
			go func() { results <- p.take(t.Context(), other) }()
		}
		synctest.Wait()
		take(other, errBusy, queueTime+time.Second) // at once
		for _, a := range full {
			p.free(a)
		}
		for i := range maxQueue {
			want := error(nil)
			if i >= addressExchanges {
				want = errBusy
			}
			if err := <-results; !errors.Is(err, want) {
				t.Errorf("%d. of those that wait: %v", i, err)
			}
		}
		p.free(other)
		p.free(other)
		if p.taken.Taken() != 0 || p.waiting != 0 {
			t.Errorf("at the end %d places are taken, and %d wait", p.taken.Taken(), p.waiting)
		}
	})
}
