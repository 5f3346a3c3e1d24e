//go:build unix

package takeover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/test/history"
)

// value returns a value that was not written before.
func (p *Pair) value() string { return fmt.Sprint("v", p.version.Add(1)) }

// keys is the number of objects that are written at a time.
const keys = 4

// key returns one of the objects of a window of time, so that the search for an order of all requests for an object stays short.
func (p *Pair) key(rng *rand.Rand, back int64) string {
	return fmt.Sprintf("%s/w%d-%d", namespace, max(p.window.Load()-back, 0), rng.IntN(keys))
}

// load sends random requests until ctx ends.
func (p *Pair) load(ctx context.Context, clients int, seed uint64) {
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() { p.send(ctx, i, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	running.Go(func() {
		for ctx.Err() == nil {
			p.window.Add(1)
			sleep(ctx, 2*time.Second)
		}
	})
	running.Wait()
}

// send is one of the clients of load.
func (p *Pair) send(ctx context.Context, id int, rng *rand.Rand) {
	var avoid [2]time.Time // until when no request is sent to each side, because it does not answer
	to := 0
	c := p.client(id, func() int { return to })
	for ctx.Err() == nil {
		if to = rng.IntN(2); time.Now().Before(avoid[to]) {
			to = 1 - to
		}
		// Most requests give up soon, so that clients do not all wait for a server that is paused. Some wait until it goes on.
		limit, patient := 300*time.Millisecond, rng.IntN(5) == 0
		if patient {
			limit = 5 * lockDuration
		}
		request, cancel := context.WithTimeout(ctx, limit)
		var op history.Op
		switch key := p.key(rng, 0); rng.IntN(8) {
		case 0:
			op = c.Create(request, key, p.value(), "red")
		case 1:
			if op = c.Get(request, key); op.Outcome == history.Done {
				op = c.Update(request, key, p.value(), "red", op.Read.Revision)
			}
		case 2:
			op = c.Update(request, key, p.value(), "blue", 0)
		case 3:
			op = c.Delete(request, key, 0)
		case 4, 5:
			op = c.Get(request, p.key(rng, rng.Int64N(4)))
		default:
			op = c.Get(request, key)
		}
		cancel()
		switch op.Outcome {
		case history.Unknown:
			// Each write whose result is not known multiplies the orders that are possible, so there are few of them for an object.
			if op.Kind.Writes() && p.unknown.Add(1)%(4*keys) == 0 {
				p.window.Add(1)
			}
			avoid[to] = time.Now().Add(time.Duration(rng.Int64N(int64(time.Second))))
			if time.Now().Before(avoid[1-to]) {
				sleep(ctx, 20*time.Millisecond)
			}
		case history.Refused:
			sleep(ctx, 5*time.Millisecond) // the standby does not listen
		case history.Done:
			p.done.Add(1)
			fallthrough
		default:
			p.last.Store(int64(to))
		}
	}
}
