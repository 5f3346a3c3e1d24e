//go:build unix

package takeover

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/history"
)

// Rounds makes faults while clients send requests to two servers with --backup-mode=sync, which take over from each other. All answers
// together are those of one server: nothing that was answered is lost, no answer comes from a server after another one has taken over, and
// revisions only rise.
func (p *Pair) Rounds(rounds int) {
	t := p.t
	t.Helper()
	before := p.await("the start")
	p.rec.Take()
	var past []history.Op
	var takeovers []time.Duration
	answered, faults := 0, p.faults()
	for round := range rounds {
		ctx, cancel := context.WithCancel(context.Background())
		supervised, loaded, seed := make(chan struct{}), make(chan struct{}), p.rng.Uint64()
		go func() {
			defer close(supervised)
			p.supervise(ctx)
		}()
		go func() {
			defer close(loaded)
			p.load(ctx, 8, seed)
		}()
		p.awaitDone(ctx)
		sleep(ctx, p.random(time.Second))
		what := ""
		for range 1 + p.rng.IntN(2) {
			what += "; " + p.choose(faults).run(ctx, p.target())
		}
		sleep(ctx, p.random(lockDuration))
		cancel()
		<-loaded
		<-supervised
		p.stop()
		p.rec.Settle()
		after := p.await(what)
		ops := p.rec.Take()
		n, outage := summary(ops)
		answered += n
		takeovers = append(takeovers, outage...)
		if err := history.CheckLinearizable(ops, before, patience); err != nil {
			t.Fatalf("round %d%s: %v\n%s", round, what, err, p.logs())
		}
		if err := history.CheckOrder(append(past, ops...)); err != nil {
			t.Fatalf("round %d%s: %v\n%s", round, what, err, p.logs())
		}
		t.Logf("round %d%s: %d requests, %d answered, takeovers %v", round, what, len(ops), n, outage)
		before, past = after, ops
	}
	if answered < least*rounds {
		t.Errorf("only %d requests were answered", answered)
	}
	logTakeovers(t, takeovers)
}

// least is the number of requests that are done in each round before its first fault.
const least = 25

// awaitDone waits until least more requests were done, at most for the time patience: on a busy machine, the first ones may take a second.
func (p *Pair) awaitDone(ctx context.Context) {
	limit, end := time.Now().Add(patience), p.done.Load()+least
	for p.done.Load() < end && time.Now().Before(limit) {
		sleep(ctx, 10*time.Millisecond)
	}
}

// term returns the number of takeovers before a revision: each leaves out a thousand million revisions.
func term(revision int64) int64 { return revision / 1_000_000_000 }

// summary returns the number of answers, and for each takeover the time between the last answer of the earlier server to a write and the first one
// of the later server.
func summary(ops []history.Op) (answered int, takeovers []time.Duration) {
	type span struct{ first, last time.Duration }
	terms := map[int64]span{}
	for _, o := range ops {
		if o.Outcome != history.Done {
			continue
		}
		answered++
		revision := o.Revision
		if revision == 0 || !(o.Kind == history.Create || o.Kind == history.Update || o.Kind == history.Replace) {
			continue
		}
		s, ok := terms[term(revision)]
		if !ok {
			s = span{o.Return, o.Return}
		}
		terms[term(revision)] = span{min(s.first, o.Return), max(s.last, o.Return)}
	}
	numbers := []int64{}
	for n := range terms {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	for i := 1; i < len(numbers); i++ {
		takeovers = append(takeovers, (terms[numbers[i]].first - terms[numbers[i-1]].last).Round(time.Millisecond))
	}
	return answered, takeovers
}

// logTakeovers prints how long takeovers took. They are not checked, because the machine may be busy.
func logTakeovers(t testing.TB, takeovers []time.Duration) {
	if len(takeovers) == 0 {
		t.Log("no takeover")
		return
	}
	slices.Sort(takeovers)
	t.Logf("%d takeovers: the median time without answers to writes was %s, the longest %s", len(takeovers),
		takeovers[len(takeovers)/2], fmt.Sprint(takeovers[len(takeovers)-1]))
}
