package changelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/blockfile"
)

var testHeader = Header{Epoch: 3, After: 100, Program: "test"}

// segment writes a segment that ends at a revision.
func segment(t testing.TB, h Header, through int64, list []Transaction) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, h)
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
	err = r.Each(context.Background(), func(x *Transaction) error {
		list = append(list, *x)
		return nil
	})
	return r.Header(), list, r.Totals(), err
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
	if _, _, _, err := readAll(file); err != nil {
		t.Fatal(err)
	}
	for i := range file {
		for bit := range 8 {
			changed := bytes.Clone(file)
			changed[i] ^= 1 << bit
			if _, _, _, err := readAll(changed); err == nil {
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

func TestOtherFiles(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		want    error
	}{
		"empty":      {"", ErrDamaged},
		"other":      {strings.Repeat("not changes", 10), ErrDamaged},
		"newer":      {"KEELSON-CHANGES 3\nand more", ErrOtherFormat},
		"first":      {zipped + "compressed as a whole", ErrOtherFormat},
		"no header":  {line, ErrDamaged},
		"huge block": {line + "h\x03\xff\xff\xff", ErrDamaged},
	} {
		if _, _, _, err := readAll([]byte(c.content)); !errors.Is(err, c.want) {
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
		w, err := NewWriter(io.Discard, testHeader)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range list {
			err = w.Write(x)
		}
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	w, err := NewWriter(io.Discard, testHeader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(99); err == nil {
		t.Error("a segment ended before it began")
	}
	if _, err := NewWriter(io.Discard, Header{After: -1}); err == nil {
		t.Error("a segment began after a negative revision")
	}
}

// TestAppend merges segments whose frames are small and large, with revisions left out between them.
func TestAppend(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var want []Transaction
	var parts [][]byte
	after, copied := testHeader.After, 0
	for i := range 12 {
		h := Header{Epoch: testHeader.Epoch, After: after}
		list := someTransactions(rng, after, []int{3, 300, 0, 1800}[i%4])
		if len(list) > 0 {
			after = list[len(list)-1].Revision
		}
		after += rng.Int64N(3)
		parts, want = append(parts, segment(t, h, after, list)), append(want, list...)
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, testHeader)
	if err != nil {
		t.Fatal(err)
	}
	rests := 0
	for _, part := range parts {
		r, err := NewReader(bytes.NewReader(part))
		if err == nil {
			err = w.Append(r, func() error { rests++; return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	totals, err := w.Close(after)
	if err != nil {
		t.Fatal(err)
	}
	_, got, _, err := readAll(out.Bytes())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%d transactions of %d came back, %v", len(got), len(want), err)
	}
	for r, err := NewReader(&out); ; {
		if err != nil {
			t.Fatal(err)
		}
		_, packed, err := r.nextFrame()
		if errors.Is(err, io.EOF) {
			break
		}
		for _, part := range parts {
			if bytes.Contains(part, packed) {
				copied++
			}
		}
	}
	if totals.Transactions != int64(len(want)) || copied == 0 || rests < len(parts) {
		t.Errorf("%+v, %d frames were copied, %d rests", totals, copied, rests)
	}
	damaged := bytes.Clone(parts[3])
	damaged[len(damaged)/2] ^= 1
	for _, part := range [][]byte{damaged, parts[3][:len(parts[3])-1]} {
		w, err := NewWriter(io.Discard, testHeader)
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(bytes.NewReader(part))
		if err == nil {
			err = w.Append(r, func() error { return nil })
		}
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("a damaged segment was merged: %v", err)
		}
	}
}

// TestSmallSegments checks that many small segments need memory for what they have, and not for the window of the compression each time.
func TestSmallSegments(t *testing.T) {
	const count, size = 50, 500 << 10
	list := []Transaction{{Revision: 101, Operations: []Operation{{Key: "/a", Value: bytes.Repeat([]byte("0123456789"), size/10)}}}}
	if _, _, _, err := readAll(segment(t, testHeader, 101, list)); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range count {
		segment(t, testHeader, 101, list)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / count; each > 2*size {
		t.Errorf("%d bytes were allocated for each segment of %d", each, size)
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

// FuzzRead reads arbitrary segments without a panic. Transactions that are read must survive another write and read.
func FuzzRead(f *testing.F) {
	f.Add(small(f))
	f.Add(segment(f, testHeader, 100, nil))
	f.Fuzz(func(t *testing.T, file []byte) {
		h, list, totals, err := readAll(file)
		if err == nil {
			survive(t, h, totals.Through, list)
		}
	})
}

// FuzzFrame reads arbitrary frames as FuzzRead does segments, of which nearly every one is refused because of a checksum.
func FuzzFrame(f *testing.F) {
	some := someTransactions(rand.New(rand.NewPCG(1, 2)), testHeader.After, 9)
	for _, file := range [][]byte{small(f), segment(f, testHeader, 1e15, some)} {
		r, err := NewReader(bytes.NewReader(file))
		if err == nil {
			_, err = r.Next()
		}
		if err != nil {
			f.Fatal(err)
		}
		f.Add(r.whole)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		r, err := NewReader(bytes.NewReader(small(t)))
		if err != nil {
			t.Fatal(err)
		}
		r.block = frame
		var list []Transaction
		for len(r.block) > 0 {
			x, err := r.cut()
			if err != nil {
				break
			}
			list = append(list, x)
		}
		survive(t, testHeader, math.MaxInt64, list)
	})
}

// survive writes and reads transactions.
func survive(t *testing.T, h Header, through int64, list []Transaction) {
	t.Helper()
	h2, again, _, err := readAll(segment(t, h, through, list))
	if err != nil || h2 != h || len(list) > 0 && !reflect.DeepEqual(again, list) {
		t.Errorf("%+v and %d transactions became %+v and %d, %v", h, len(list), h2, len(again), err)
	}
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
	w, err := NewWriter(size, testHeader)
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
