package embedded

import (
	"bytes"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
)

// exported returns the records of a store, and those of its log after a revision.
func exported(t *testing.T, e *Export, err error, after int64) (records []Record, log []string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for r, err := range e.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	for r, err := range e.Past(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Key[0] == prefixLog && bytes.Compare(r.Key, logKey(after)) > 0 {
			log = append(log, fmt.Sprintf("%q %q", r.Key, r.Value))
		}
	}
	return records, log
}

// all returns a sequence of a list.
func all[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, x := range list {
			if !yield(x, nil) {
				return
			}
		}
	}
}

// randomCommits commits n transactions with one to three operations.
func randomCommits(t *testing.T, s *Store, rng *rand.Rand, n int) {
	t.Helper()
	for range n {
		txn := storage.Txn{By: []byte(fmt.Sprint("user ", rng.IntN(3)))}
		for _, k := range rng.Perm(30)[:1+rng.IntN(3)] {
			op := storage.Op{Key: fmt.Sprintf("/k%02d", k), Delete: rng.IntN(3) == 0}
			if !op.Delete {
				op.Value, op.TTL = randomBytes(rng.IntN(2000), rng.Uint64()), rng.Int64N(2)*100
			}
			txn.Ops = append(txn.Ops, op)
		}
		if _, err := s.Commit(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplayTwin makes a store of an export and of the segments of the changes after it, and compares it with the store that was
// changed: all records with their deadlines, and what the log says of each revision.
func TestReplayTwin(t *testing.T) {
	for range effort.Rounds(40, 8) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			s := mustOpen(t, Options{InMemory: true, HistoryWindow: -1})
			randomCommits(t, s, rng, rng.IntN(100))
			e, err := s.Export(t.Context())
			image, _ := exported(t, e, err, 0)
			from := e.Revision()
			var segments []byte
			last := from
			for range 1 + rng.IntN(3) {
				randomCommits(t, s, rng, rng.IntN(60))
				for more := true; more; {
					bytes := rng.IntN(5000)
					result, err := s.Changes(t.Context(), storage.ChangesRequest{After: last, Bytes: bytes})
					if err != nil {
						t.Fatal(err)
					}
					// The revision that reaches the limit is the last one. It has at most 3 values of less than 2,000 bytes.
					if size := valueBytes(result.Changes); bytes > 0 && size >= bytes+6000 {
						t.Errorf("%d bytes of values, want about %d", size, bytes)
					}
					segments = appendSegment(t, segments, last, result)
					last, more = result.Through, result.More
				}
			}

			o := testOptions(Options{Dir: t.TempDir()})
			if err := Import(o, from, all(image), nil); err != nil {
				t.Fatal(err)
			}
			revision, err := Replay(t.Context(), o, all(readSegments(t, segments)))
			if err != nil || revision != s.hub.durable.Load() {
				t.Fatalf("replayed to %d, %v; the store is at %d", revision, err, s.hub.durable.Load())
			}
			reader, err := OpenReader(o)
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			e, err = reader.Export()
			got, gotLog := exported(t, e, err, from)
			e, err = s.Export(t.Context())
			want, wantLog := exported(t, e, err, from)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%d records are not the %d of the store", len(got), len(want))
			}
			if !slices.Equal(gotLog, wantLog) {
				t.Errorf("the log\n%s\nis not\n%s", strings.Join(gotLog, "\n"), strings.Join(wantLog, "\n"))
			}
		})
	}
}

func valueBytes(changes []storage.Change) (n int) {
	for i := range changes {
		n += len(changes[i].Entry.Value)
	}
	return n
}

// appendSegment appends a segment with its length.
func appendSegment(t *testing.T, b []byte, after int64, result storage.ChangesResult) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := changelog.NewWriter(&out, changelog.Header{After: after})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range changelog.Transactions(result.Changes) {
		if err := w.Write(x); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(result.Through); err != nil {
		t.Fatal(err)
	}
	return append(append(b, encodeNumber(int64(out.Len()))...), out.Bytes()...)
}

// readSegments returns the transactions of segments.
func readSegments(t *testing.T, b []byte) (list []changelog.Transaction) {
	t.Helper()
	for len(b) > 0 {
		n, err := decodeNumber(b[:8])
		if err != nil {
			t.Fatal(err)
		}
		r, err := changelog.NewReader(bytes.NewReader(b[8 : 8+n]))
		if err != nil {
			t.Fatal(err)
		}
		err = r.Each(t.Context(), func(x *changelog.Transaction) error {
			list = append(list, *x)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b = b[8+n:]
	}
	return list
}

// TestReplayRefusesHoles checks that what cannot follow a store is refused.
func TestReplayRefusesHoles(t *testing.T) {
	put := []changelog.Operation{{Key: "/a", Value: []byte("x")}}
	for name, list := range map[string][]changelog.Transaction{
		"a revision of the image": {{Revision: 10, Operations: put}},
		"a revision twice":        {{Revision: 11, Operations: put}, {Revision: 11, Operations: put}},
		"a missing creation":      {{Revision: 11, Time: time.UnixMilli(1), Operations: []changelog.Operation{{Key: "/b", Deleted: true}}}},
		"a bad key":               {{Revision: 11, Operations: []changelog.Operation{{Key: "/a\x00"}}}},
	} {
		o := testOptions(Options{Dir: t.TempDir()})
		if err := Import(o, 10, all([]Record{}), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := Replay(t.Context(), o, all(list)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
