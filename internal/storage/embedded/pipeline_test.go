package embedded

import (
	"errors"
	"testing"

	"github.com/keelson-dev/keelson/internal/storage"
)

// fakeBatch is a batch that becomes durable when the test sends the result of its sync.
type fakeBatch struct {
	applied chan struct{}
	durable chan error
}

func (b *fakeBatch) apply() error { close(b.applied); return nil }
func (b *fakeBatch) wait() error  { return <-b.durable }

// fakePipeline returns a pipeline that puts all waiting requests into one group. A transaction without operations
// needs no batch.
func fakePipeline(batches chan *fakeBatch, published chan int64) *pipeline {
	last := int64(0)
	return newPipeline(pipelineEnv{
		plan: func(requests []*request) *group {
			g := &group{}
			for _, r := range requests {
				if len(r.txn.Ops) > 0 {
					last++
					g.records = append(g.records, &record{revision: last})
				}
				g.answers = append(g.answers, answer{request: r, revision: last})
			}
			if len(g.records) > 0 {
				b := &fakeBatch{applied: make(chan struct{}), durable: make(chan error)}
				batches <- b
				g.batch = b
			}
			return g
		},
		publish: func(g *group) { published <- g.records[len(g.records)-1].revision },
		durable: func(*group) {},
		failed:  func(error) {},
	})
}

func submit(t *testing.T, p *pipeline, ops int) *request {
	t.Helper()
	r := newRequest(storage.Txn{Ops: make([]storage.Op, ops)})
	if err := p.submit(r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPipelineOverlaps(t *testing.T) {
	batches, published := make(chan *fakeBatch), make(chan int64, 10)
	p := fakePipeline(batches, published)
	one := submit(t, p, 1)
	b1 := receive(t, "a batch", batches)
	receive(t, "the first batch is applied", b1.applied)
	two := submit(t, p, 1)
	b2 := receive(t, "a batch", batches) // it is built and applied while the first one is being synced
	receive(t, "the second batch is applied", b2.applied)
	three, four := submit(t, p, 1), submit(t, p, 0) // these wait, because two groups are in flight
	if len(published) != 0 || len(one.done)+len(two.done) != 0 {
		t.Error("published or answered before the sync")
	}
	b1.durable <- nil
	receive(t, "the first transaction is answered", one.done)
	b3 := receive(t, "a batch", batches)
	if len(two.done) != 0 || len(three.done) != 0 || len(four.done) != 0 {
		t.Error("answered before the sync")
	}
	b2.durable <- nil
	receive(t, "the second transaction is answered", two.done)
	b3.durable <- nil
	receive(t, "the third transaction is answered", three.done)
	receive(t, "the fourth transaction is answered", four.done)
	for want := int64(1); want <= 3; want++ {
		if got := receive(t, "a revision is published", published); got != want {
			t.Errorf("published %d, want %d", got, want)
		}
	}
	if one.revision != 1 || two.revision != 2 || three.revision != 3 || four.revision != 3 {
		t.Errorf("revisions %d %d %d %d", one.revision, two.revision, three.revision, four.revision)
	}
	p.close()
	if err := p.submit(newRequest(storage.Txn{})); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("submit after close: %v", err)
	}
}

func TestPipelineFails(t *testing.T) {
	batches, published := make(chan *fakeBatch), make(chan int64, 10)
	p := fakePipeline(batches, published)
	one := submit(t, p, 1)
	b1 := receive(t, "a batch", batches)
	two := submit(t, p, 1)
	b2 := receive(t, "a batch", batches)
	three := submit(t, p, 0) // its answer depends on the other transactions
	b1.durable <- errors.New("lost")
	receive(t, "the first transaction is answered", one.done)
	b2.durable <- nil // the sync of this batch succeeded, but an earlier one failed
	receive(t, "the second transaction is answered", two.done)
	receive(t, "the third transaction is answered", three.done)
	for _, r := range []*request{one, two, three} {
		if !errors.Is(r.err, storage.ErrFailed) {
			t.Errorf("answered %d, %v", r.revision, r.err)
		}
	}
	if err := p.submit(newRequest(storage.Txn{})); !errors.Is(err, storage.ErrFailed) {
		t.Errorf("submit after the failure: %v", err)
	}
	p.close()
	if len(published) != 0 {
		t.Error("published after the failure")
	}
}

func TestPipelineAbandoned(t *testing.T) {
	batches, published := make(chan *fakeBatch), make(chan int64, 10)
	p := fakePipeline(batches, published)
	one := submit(t, p, 1)
	b1 := receive(t, "a batch", batches)
	two := submit(t, p, 1)
	b2 := receive(t, "a batch", batches)
	three := submit(t, p, 1)
	if two.abandon() || !three.abandon() {
		t.Error("a request can be taken back until it is taken, and not after")
	}
	b1.durable <- nil
	b2.durable <- nil
	receive(t, "the first transaction is answered", one.done)
	receive(t, "the second transaction is answered", two.done)
	p.close()
	if len(three.done) != 0 {
		t.Error("an abandoned request was answered")
	}
}
