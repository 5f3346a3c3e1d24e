//go:build unix

package takeover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/test/history"
)

// behind is what a server said about its copy at one moment.
type behind struct {
	call      time.Duration // when it was asked, on the clock of the recorder
	term      int64         // the term of the server
	revisions int           // keelson_backup_behind_revisions
}

// OnlyTheEndIsLost makes faults while clients create objects on two servers without --backup-mode=sync, which take over from each other. What is
// lost are the last changes of a server before another one took over, none in between, and not more than the metric had said; no server
// answers after another one has; and no revision is used twice.
func (p *Pair) OnlyTheEndIsLost(rounds int) {
	t := p.t
	t.Helper()
	p.await("the start")
	var created []history.Op
	var said []behind
	var takeovers []time.Duration
	faults := p.faults()
	lost := map[string]bool{} // ever
	for round := range rounds {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { p.supervise(ctx) })
		for i := range 4 {
			seed := p.rng.Uint64()
			running.Go(func() { p.create(ctx, i, round, rand.New(rand.NewPCG(seed, 1))) })
		}
		var mu sync.Mutex // guards said
		for i := range p.sides {
			running.Go(func() { p.ask(ctx, i, func(b behind) { mu.Lock(); said = append(said, b); mu.Unlock() }) })
		}
		sleep(ctx, time.Second)
		what := ""
		for range 1 + p.rng.IntN(2) {
			what += "; " + p.choose(faults).run(ctx, p.target())
		}
		sleep(ctx, lockDuration)
		cancel()
		running.Wait()
		p.stop()
		there := p.await(what)
		ops := p.rec.Take()
		_, outage := summary(ops)
		takeovers = append(takeovers, outage...)
		for _, op := range ops {
			if op.Kind == history.Create && op.Outcome == history.Done {
				created = append(created, op)
			}
		}
		if err := checkLost(created, there, said, lost); err != nil {
			t.Fatalf("round %d%s: %v\n%s", round, what, err, p.logs())
		}
		t.Logf("round %d%s: %d created, %d of them lost, the copy was asked %d times, takeovers %v", round, what, len(created), len(lost),
			len(said), outage)
	}
	if len(created) < 10*rounds {
		t.Errorf("only %d objects were created", len(created))
	}
	if len(said) == 0 {
		t.Error("no server has said how far its copy is behind")
	}
	logTakeovers(t, takeovers)
}

// create creates objects until ctx ends.
func (p *Pair) create(ctx context.Context, id, round int, rng *rand.Rand) {
	to := 0
	c := p.client(id, func() int { return to })
	for n := 0; ctx.Err() == nil; n++ {
		to = rng.IntN(2)
		request, cancel := context.WithTimeout(ctx, time.Second)
		op := c.Create(request, fmt.Sprintf("%s/r%d-%d-%d", namespace, round, id, n), "v", "red")
		cancel()
		switch op.Outcome {
		case history.Done:
			p.last.Store(int64(to))
			sleep(ctx, time.Duration(rng.Int64N(int64(20*time.Millisecond)))) // so that lists do not become long
		case history.Refused:
			sleep(ctx, 5*time.Millisecond) // the standby does not listen
		}
	}
}

// ask asks one of the servers how far its copy is behind, again and again until ctx ends. An answer counts if the server had the lock
// afterwards: it has answered a request for objects.
func (p *Pair) ask(ctx context.Context, side int, add func(behind)) {
	c := p.client(100+side, func() int { return side })
	for ; ctx.Err() == nil; sleep(ctx, 50*time.Millisecond) {
		request, cancel := context.WithTimeout(ctx, time.Second)
		b := behind{call: p.rec.Now()}
		values, err := Metrics(request, c.HTTP, c.Base(), token, "keelson_backup_behind_revisions")
		if err == nil {
			if list := c.List(request, namespace+"-none", 0); list.Outcome == history.Done {
				b.revisions, b.term = int(values[0]), term(list.Revision)
				add(b)
			}
		}
		cancel()
	}
}

// checkLost checks the objects that were created against those that are there. It adds those that are not to lost.
func checkLost(created []history.Op, there map[string]history.State, said []behind, lost map[string]bool) error {
	if err := history.CheckOrder(created); err != nil {
		return err
	}
	terms := map[int64][]history.Op{}
	for _, op := range created {
		terms[term(op.Revision)] = append(terms[term(op.Revision)], op)
	}
	firstAnswer := map[int64]time.Duration{}
	for n, ops := range terms {
		slices.SortFunc(ops, func(a, b history.Op) int { return int(a.Revision - b.Revision) })
		var first *history.Op // that was lost
		for i, op := range ops {
			if at, ok := firstAnswer[n]; !ok || op.Return < at {
				firstAnswer[n] = op.Return
			}
			switch {
			case !there[op.Key].Exists():
				if lost[op.Key] = true; first == nil {
					first = &ops[i]
				}
			case lost[op.Key]:
				return fmt.Errorf("%v was lost, and is there again", op)
			case there[op.Key].Revision != op.Revision:
				return fmt.Errorf("%v has the revision %d now", op, there[op.Key].Revision)
			case first != nil:
				return fmt.Errorf("%v was lost, and the later %v was not", *first, op)
			}
		}
	}
	for _, op := range created {
		for later, at := range firstAnswer {
			if later > term(op.Revision) && op.Call > at {
				return fmt.Errorf("%v was answered after another server had answered", op)
			}
		}
	}
	for _, b := range said {
		n := 0
		for _, op := range terms[b.term] {
			if op.Return < b.call && lost[op.Key] {
				n++
			}
		}
		if n > b.revisions {
			return fmt.Errorf("at %s a server of term %d said that its copy is %d changes behind, and of those that it had answered %d are lost",
				b.call, b.term, b.revisions, n)
		}
	}
	return nil
}
