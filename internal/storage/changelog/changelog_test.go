package changelog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/keelson-dev/keelson/internal/storage/blockfile"
)

var testHeader = Header{Epoch: 3, After: 100, Program: "test"}

// segment writes a segment that ends at a revision.
func segment(t testing.TB, h Header, through int64, list []Transaction) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, h, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		if err := w.Write(x); err != nil {
			t.Fatal(err)
		}
	}
	totals, err := w.Close(through)
	if err != nil || totals.Transactions != int64(len(list)) || totals.Through != through {
		t.Fatalf("%+v, %v", totals, err)
	}
	return out.Bytes()
}

// readAll returns what a segment has. The error is nil only if it was verified completely.
func readAll(b []byte) (h Header, list []Transaction, totals Totals, err error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return h, nil, totals, err
	}
	defer r.Close()
	for {
		x, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Header(), list, r.Totals(), nil
		}
		if err != nil {
			return r.Header(), list, r.Totals(), err
		}
		list = append(list, x)
	}
}

// someTransactions returns random transactions after a revision, also ones without a time and ones that are larger than a block.
func someTransactions(rng *rand.Rand, after int64, n int) (list []Transaction) {
	at := int64(1e12)
	for i := range n {
		after += 1 + rng.Int64N(2)*rng.Int64N(1000)
		at += rng.Int64N(5000) - 1000
		x := Transaction{Revision: after, Time: time.UnixMilli(at), By: []byte(fmt.Sprint("user ", rng.IntN(3)))}
		if rng.IntN(10) == 0 {
			x.Time = time.Time{}
		}
		for j := range 1 + rng.IntN(3) {
			op := Operation{Key: fmt.Sprintf("/registry/pods/a/p%d-%d", i%20, j), Deleted: rng.IntN(4) == 0}
			if !op.Deleted {
				op.Value = make([]byte, rng.IntN(3000))
				if i%100 == 50 {
					op.Value = make([]byte, 600_000)
				}
				for k := range op.Value {
					op.Value[k] = byte(rng.Uint32())
				}
				op.Deadline = rng.Int64N(2) * 1e12
			}
			x.Operations = append(x.Operations, op)
		}
		list = append(list, x)
	}
	return list
}

func TestRoundTrip(t *testing.T) {
	for _, list := range [][]Transaction{nil, someTransactions(rand.New(rand.NewPCG(1, 2)), testHeader.After, 300)} {
		through := testHeader.After + 7
		if len(list) > 0 {
			through = list[len(list)-1].Revision + 7
		}
		h, got, totals, err := readAll(segment(t, testHeader, through, list))
		if err != nil || h != testHeader || totals.Through != through {
			t.Fatalf("%+v, %+v, %v", h, totals, err)
		}
		if len(got) != len(list) || len(list) > 0 && !reflect.DeepEqual(got, list) {
			t.Errorf("%d transactions came back differently", len(list))
		}
	}
}

// small is a segment in which all forms of operations are.
func small(t testing.TB) []byte {
	return segment(t, testHeader, 110, []Transaction{
		{Revision: 101, Time: time.UnixMilli(1e12), By: []byte("me"), Operations: []Operation{{Key: "/a", Value: []byte("one")}}},
		{Revision: 105, Operations: []Operation{{Key: "/a", Deleted: true}, {Key: "/b", Value: []byte{}, Deadline: 5}}},
	})
}

// TestEveryChangeIsDetected changes each bit of a segment, truncates it at each length, and appends to it.
func TestEveryChangeIsDetected(t *testing.T) {
	file := small(t)
	_, want, _, err := readAll(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range file {
		for bit := range 8 {
			changed := bytes.Clone(file)
			changed[i] ^= 1 << bit
			// A few bits of the compression have no meaning: then the content is the same.
			if h, got, _, err := readAll(changed); err == nil && (h != testHeader || !reflect.DeepEqual(got, want)) {
				t.Errorf("bit %d of byte %d was changed, and nobody noticed", bit, i)
			}
		}
		if _, _, _, err := readAll(file[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut at byte %d: %v", i, err)
		}
	}
	if _, _, _, err := readAll(append(bytes.Clone(file), 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("with something behind: %v", err)
	}
}

var encoder = sync.OnceValue(func() *zstd.Encoder {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return w
})

func zipped(content string) []byte { return encoder().EncodeAll([]byte(content), nil) }

func TestOtherFiles(t *testing.T) {
	for name, c := range map[string]struct {
		content []byte
		want    error
	}{
		"empty":      {nil, ErrDamaged},
		"plain":      {[]byte(line), ErrDamaged},
		"other":      {zipped(strings.Repeat("not changes", 10)), ErrDamaged},
		"newer":      {zipped("KEELSON-CHANGES 2\nand more"), ErrNewer},
		"no header":  {zipped(line), ErrDamaged},
		"huge block": {zipped(line + "h\x03\xff\xff\xff"), ErrDamaged},
	} {
		if _, _, _, err := readAll(c.content); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := NewReader(failing{}); !errors.Is(err, errFailing) || errors.Is(err, ErrDamaged) {
		t.Errorf("a reader that fails: %v", err)
	}
}

var errFailing = errors.New("the network is gone")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFailing }

func TestRefusedTransactions(t *testing.T) {
	put := []Operation{{Key: "/a"}}
	for name, list := range map[string][]Transaction{
		"not after the header": {{Revision: 100, Operations: put}},
		"twice":                {{Revision: 101, Operations: put}, {Revision: 101, Operations: put}},
		"nothing":              {{Revision: 101}},
		"no key":               {{Revision: 101, Operations: []Operation{{}}}},
		"a zero byte":          {{Revision: 101, Operations: []Operation{{Key: "/a\x00"}}}},
		"a deletion's value":   {{Revision: 101, Operations: []Operation{{Key: "/a", Deleted: true, Value: []byte("x")}}}},
		"a negative deadline":  {{Revision: 101, Operations: []Operation{{Key: "/a", Deadline: -1}}}},
		"too large":            {{Revision: 101, Operations: []Operation{{Key: "/a", Value: make([]byte, blockfile.MaxPayload)}}}},
	} {
		w, err := NewWriter(io.Discard, testHeader, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range list {
			err = w.Write(x)
		}
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
		w.Abort()
	}
	w, err := NewWriter(io.Discard, testHeader, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(99); err == nil {
		t.Error("a segment ended before it began")
	}
	if _, err := NewWriter(io.Discard, Header{After: -1}, 0); err == nil {
		t.Error("a segment began after a negative revision")
	}
}

// TestSmallSegment checks that a segment whose size is known needs memory for that size, when it is written and when it is read.
func TestSmallSegment(t *testing.T) {
	const size, count = 50 << 10, 10
	var list []Transaction
	for i := range int64(count) {
		list = append(list, Transaction{Revision: 101 + i, Time: time.UnixMilli(1e12), By: []byte("a"), Operations: []Operation{
			{Key: "/a", Value: bytes.Repeat([]byte("0123456789"), size/10)},
		}})
	}
	allocated := func(size int64) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var out bytes.Buffer
		w, err := NewWriter(&out, testHeader, size)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range list {
			if err := w.Write(x); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Close(100 + count); err != nil {
			t.Fatal(err)
		}
		if _, got, _, err := readAll(out.Bytes()); err != nil || !reflect.DeepEqual(got, list) {
			t.Fatalf("%d transactions, %v", len(got), err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if known, unknown := allocated(size*count), allocated(0); known > unknown/4 {
		t.Errorf("%d bytes were allocated, and %d without the size", known, unknown)
	}
}

func TestNames(t *testing.T) {
	n := Name{After: 7, Through: 1 << 62, Last: time.UnixMilli(1_732_000_000_123)}
	const want = "0000000000000000007-4611686018427387904-1732000000123.changes"
	if n.String() != want {
		t.Errorf("%s, want %s", n, want)
	}
	if got, ok := ParseName(want); !ok || got != n {
		t.Errorf("%+v, %v", got, ok)
	}
	for _, s := range []string{
		"", "x", "7-8-0.changes", want + "x", "x" + want, "0000000000000000009-0000000000000000008-1732000000123.changes",
		"-000000000000000009-0000000000000000008-1732000000123.changes",
	} {
		if n, ok := ParseName(s); ok {
			t.Errorf("%q is %+v", s, n)
		}
	}
}

// FuzzRead reads arbitrary segments without a panic. Transactions that are read must survive another write and read. The segments
// are not compressed, because nearly every one would otherwise be refused at once.
func FuzzRead(f *testing.F) {
	r, err := zstd.NewReader(nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range [][]byte{small(f), segment(f, testHeader, 100, nil)} {
		plain, err := r.DecodeAll(file, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(plain)
	}
	f.Fuzz(func(t *testing.T, plain []byte) {
		h, list, totals, err := readAll(zipped(string(plain)))
		if err != nil {
			return
		}
		h2, again, totals2, err := readAll(segment(t, h, totals.Through, list))
		if err != nil || h2 != h || totals2 != totals || len(list) > 0 && !reflect.DeepEqual(again, list) {
			t.Errorf("%+v and %d transactions became %+v and %d, %v", h, len(list), h2, len(again), err)
		}
	})
}

// BenchmarkWrite writes the versions of 100 objects of 5.6 KB in turn, each of which differs from the one before in a few bytes.
// bytes/version is what a version takes in the segment.
func BenchmarkWrite(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([][]byte, 100)
	for i := range values {
		values[i] = make([]byte, 5600)
		for j := range values[i] {
			values[i][j] = byte('a' + rng.IntN(26))
		}
	}
	size := &counter{}
	w, err := NewWriter(size, testHeader, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(5600)
	revision := testHeader.After
	for b.Loop() {
		revision++
		value := bytes.Clone(values[revision%100])
		copy(value[rng.IntN(5000):], fmt.Sprintf("%020d", revision))
		values[revision%100] = value
		err := w.Write(Transaction{
			Revision: revision, Time: time.UnixMilli(1e12 + revision*3), By: []byte("system:node:a"),
			Operations: []Operation{{Key: fmt.Sprintf("/registry/pods/default/p%d", revision%100), Value: value}},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if _, err := w.Close(revision); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(size.n)/float64(revision-testHeader.After), "bytes/version")
}

type counter struct{ n int64 }

func (c *counter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return len(b), nil
}
