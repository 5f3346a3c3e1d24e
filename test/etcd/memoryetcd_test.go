package etcd

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/keelson-dev/keelson/internal/storage/memoryetcd"
)

// startMemory returns the address of a memoryetcd server that ends with the test.
func startMemory(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := memoryetcd.New(memoryetcd.Options{Log: quiet()})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return "http://" + l.Addr().String()
}

func dialEtcd(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the error does not matter
	return c
}

// TestMemoryAsEtcd sends the same random requests to etcd and to memoryetcd and compares the responses, and at the end
// what watches from several revisions see.
func TestMemoryAsEtcd(t *testing.T) {
	real, memory := dialEtcd(t, start(t, 1, nil).endpoints()...), dialEtcd(t, startMemory(t))
	steps := 3000
	if long() {
		steps = 100_000
	}
	seed := uint64(time.Now().UnixNano())
	g := &requests{rand.New(rand.NewPCG(seed, 0))}
	var revision, compacted int64 = 1, -1
	for i := range steps {
		var a, b, what string
		if g.IntN(200) == 0 {
			wanted := max(compacted, 0) + g.Int64N(revision-max(compacted, 0)+3)
			a, b = compact(t, real, wanted), compact(t, memory, wanted)
			if wanted > compacted && wanted <= revision {
				compacted = wanted
			}
		} else {
			op := g.op(revision, outermost)
			what = describe(op)
			var r clientv3.OpResponse
			r, a = do(t, real, op)
			_, b = do(t, memory, op)
			revision = max(revision, responseRevision(r))
		}
		if a != b {
			t.Fatalf("seed %d, step %d: %s\netcd:       %s\nmemoryetcd: %s", seed, i, what, a, b)
		}
	}
	for from := compacted - 1; from <= revision; from += 1 + (revision-compacted)/20 {
		if from == compacted {
			continue // etcd leaves events of that revision out, depending on what compaction has kept
		}
		if a, b := watched(t, real, from, revision), watched(t, memory, from, revision); a != b {
			t.Fatalf("seed %d: a watch from %d (compacted %d):\netcd:       %s\nmemoryetcd: %s", seed, from, compacted, a, b)
		}
	}
}

// requests makes random requests.
type requests struct{ *rand.Rand }

func (r *requests) key() string { return fmt.Sprintf("k%d", r.IntN(12)) }

// outermost is the depth of a request that is not in a transaction.
const outermost = 2

// op makes a request. Those in transactions cannot fail after a change: etcd would end the process.
func (r *requests) op(revision int64, depth int) clientv3.Op {
	switch n := r.IntN(10); {
	case n < 3:
		return r.put(depth == outermost)
	case n < 4:
		return clientv3.OpDelete(r.key(), r.span(clientv3.WithPrevKV())...)
	case n < 8 || depth == 0:
		return r.read(revision, depth == outermost)
	}
	var compares []clientv3.Cmp
	for range r.IntN(3) {
		compares = append(compares, r.compare(revision))
	}
	branch := func() (ops []clientv3.Op) {
		for range r.IntN(4) {
			ops = append(ops, r.op(revision, depth-1))
		}
		return ops
	}
	return clientv3.OpTxn(compares, branch(), branch())
}

func (r *requests) put(mayFail bool) clientv3.Op {
	var options []clientv3.OpOption
	if r.IntN(3) == 0 {
		options = append(options, clientv3.WithPrevKV())
	}
	kind := r.IntN(12)
	if !mayFail {
		kind = 12
	}
	switch kind {
	case 0:
		return clientv3.OpPut(r.key(), "", append(options, clientv3.WithIgnoreValue())...)
	case 1:
		return clientv3.OpPut(r.key(), "x", append(options, clientv3.WithIgnoreLease())...)
	case 2:
		return clientv3.OpPut(r.key(), "x", append(options, clientv3.WithLease(7))...) // there is no such lease
	}
	return clientv3.OpPut(r.key(), fmt.Sprint(r.IntN(20)), options...)
}

// span adds the end of a range in half of the cases.
func (r *requests) span(options ...clientv3.OpOption) []clientv3.OpOption {
	switch r.IntN(6) {
	case 0:
		return append(options, clientv3.WithFromKey())
	case 1, 2:
		return append(options, clientv3.WithRange(r.key()))
	}
	return options
}

func (r *requests) read(revision int64, mayFail bool) clientv3.Op {
	options := r.span()
	add := func(o clientv3.OpOption) {
		if r.IntN(4) == 0 {
			options = append(options, o)
		}
	}
	if mayFail {
		add(clientv3.WithRev(max(0, revision-r.Int64N(40)+2)))
	}
	add(clientv3.WithLimit(r.Int64N(5)))
	add(clientv3.WithSort(clientv3.SortTarget(r.IntN(5)), clientv3.SortOrder(r.IntN(3))))
	add(clientv3.WithMinModRev(max(0, revision-20)))
	add(clientv3.WithMaxCreateRev(max(0, revision-10)))
	switch r.IntN(6) {
	case 0:
		options = append(options, clientv3.WithKeysOnly())
	case 1:
		options = append(options, clientv3.WithCountOnly())
	}
	return clientv3.OpGet(r.key(), options...)
}

func (r *requests) compare(revision int64) clientv3.Cmp {
	result := []string{"=", "!=", ">", "<"}[r.IntN(4)]
	key := r.key()
	var c clientv3.Cmp
	switch r.IntN(5) {
	case 0:
		c = clientv3.Compare(clientv3.Value(key), result, fmt.Sprint(r.IntN(20)))
	case 1:
		c = clientv3.Compare(clientv3.Version(key), result, r.IntN(4))
	case 2:
		c = clientv3.Compare(clientv3.CreateRevision(key), result, max(0, revision-r.Int64N(20)))
	case 3:
		c = clientv3.Compare(clientv3.LeaseValue(key), result, 0)
	default:
		c = clientv3.Compare(clientv3.ModRevision(key), result, max(0, revision-r.Int64N(20)))
	}
	if r.IntN(4) == 0 {
		c = c.WithRange(r.key())
	}
	return c
}

// describe returns an operation as short text.
func describe(op clientv3.Op) string {
	if compares, then, otherwise := op.Txn(); op.IsTxn() {
		out := fmt.Sprintf("if %d (", len(compares))
		for _, op := range then {
			out += describe(op) + " "
		}
		out += ") else ("
		for _, op := range otherwise {
			out += describe(op) + " "
		}
		return out + ")"
	}
	verb := "get"
	if op.IsPut() {
		verb = "put"
	} else if op.IsDelete() {
		verb = "delete"
	}
	return fmt.Sprintf("%s[%s,%q]@%d", verb, op.KeyBytes(), op.RangeBytes(), op.Rev())
}

// do sends a request and returns its response, and all of it that has to be equal as text.
func do(t *testing.T, c *clientv3.Client, op clientv3.Op) (clientv3.OpResponse, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := c.Do(ctx, op)
	if err != nil {
		return r, err.Error()
	}
	var message interface{ String() string }
	switch {
	case r.Get() != nil:
		message = (*pb.RangeResponse)(r.Get())
	case r.Put() != nil:
		message = (*pb.PutResponse)(r.Put())
	case r.Del() != nil:
		message = (*pb.DeleteRangeResponse)(r.Del())
	default:
		message = (*pb.TxnResponse)(r.Txn())
	}
	return r, withoutMember(r, message)
}

// withoutMember returns a response as text without what says which member has sent it.
func withoutMember(r clientv3.OpResponse, message interface{ String() string }) string {
	h := headerOf(r)
	h.ClusterId, h.MemberId, h.RaftTerm = 0, 0, 0
	return message.String()
}

func headerOf(r clientv3.OpResponse) *pb.ResponseHeader {
	switch {
	case r.Get() != nil:
		return r.Get().Header
	case r.Put() != nil:
		return r.Put().Header
	case r.Del() != nil:
		return r.Del().Header
	case r.Txn() != nil:
		return r.Txn().Header
	}
	return &pb.ResponseHeader{}
}

func responseRevision(r clientv3.OpResponse) int64 { return headerOf(r).Revision }

func compact(t *testing.T, c *clientv3.Client, revision int64) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := c.Compact(ctx, revision)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(r.Header.Revision)
}

// watched returns what a watch of all keys sees up to a revision, as text.
func watched(t *testing.T, c *clientv3.Client, from, upTo int64) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out bytes.Buffer
	for r := range c.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if r.Canceled {
			return fmt.Sprintf("%s, compacted %d", r.Err(), r.CompactRevision)
		}
		for _, e := range r.Events {
			fmt.Fprintf(&out, "%v\n", e)
			if e.Kv.ModRevision == upTo {
				return out.String()
			}
		}
	}
	return out.String()
}
