package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/blockfile"
)

var testHeader = Header{Revision: 1000, Created: time.UnixMilli(1e12).UTC(), Program: "test",
	Files: map[string][]byte{"pki/ca.key": []byte("key")}}

func write(t testing.TB, h Header, entries []Entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	totals, err := w.Close()
	if err != nil || totals.Entries != int64(len(entries)) {
		t.Fatalf("%+v, %v", totals, err)
	}
	return out.Bytes()
}

func read(b []byte) (Header, []Entry, error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return Header{}, nil, err
	}
	var out []Entry
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Header(), out, nil
		}
		if err != nil {
			return r.Header(), out, err
		}
		out = append(out, e)
	}
}

func someEntries() []Entry {
	rng := rand.New(rand.NewPCG(1, 2))
	entries := []Entry{{Key: "/a", Value: []byte{}, CreateRevision: 1, ModRevision: 1}}
	for i := range 400 {
		value := make([]byte, rng.IntN(3000))
		if i%100 == 50 {
			value = make([]byte, 600_000) // larger than a block
		}
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		entries = append(entries, Entry{
			Key: fmt.Sprintf("/registry/pods/default/p%04d", i), Value: value,
			CreateRevision: int64(i + 1), ModRevision: int64(i*2 + 1), Deadline: int64(i%3) * 1e12,
		})
	}
	return entries
}

func TestRoundTrip(t *testing.T) {
	for _, entries := range [][]Entry{nil, someEntries()} {
		h, got, err := read(write(t, testHeader, entries))
		if err != nil || !reflect.DeepEqual(h, testHeader) {
			t.Fatalf("%+v, %v", h, err)
		}
		if len(got) != len(entries) || len(got) > 0 && !reflect.DeepEqual(got, entries) {
			t.Errorf("%d entries came back differently", len(entries))
		}
	}
}

// TestEveryChangeIsDetected changes each bit of a file, truncates it at each length, and appends to it.
func TestEveryChangeIsDetected(t *testing.T) {
	file := write(t, testHeader, []Entry{
		{Key: "/a", Value: []byte("one"), CreateRevision: 1, ModRevision: 2},
		{Key: "/b", Value: []byte("two"), CreateRevision: 3, ModRevision: 3, Deadline: 5},
	})
	for i := range file {
		for bit := range 8 {
			changed := bytes.Clone(file)
			changed[i] ^= 1 << bit
			if _, _, err := read(changed); err == nil {
				t.Errorf("bit %d of byte %d was changed, and nobody noticed", bit, i)
			}
		}
		if _, _, err := read(file[:i]); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotSnapshot) {
			t.Errorf("cut at byte %d: %v", i, err)
		}
	}
	if _, _, err := read(append(bytes.Clone(file), 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("with something behind: %v", err)
	}
}

func TestOtherFiles(t *testing.T) {
	for content, want := range map[string]error{
		"":                                   ErrNotSnapshot,
		"short":                              ErrNotSnapshot,
		strings.Repeat("not a snapshot", 10): ErrNotSnapshot,
		"KEELSON-SNAPSHOT 3\nand more":       ErrNewer,
	} {
		if _, _, err := read([]byte(content)); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", content, err, want)
		}
	}
}

// TestHugeLength checks that a wrong block length does not cause a large allocation: the length may exceed the end
// of the file or the limit of a block.
func TestHugeLength(t *testing.T) {
	b := write(t, testHeader, nil)[:magicLength]
	b = append(b, kindHeader)
	b = binary.BigEndian.AppendUint32(b, blockfile.MaxPayload)
	if _, _, err := read(b); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v", err)
	}
	b[magicLength+1] = 0xff
	if _, _, err := read(b); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v", err)
	}
}

func TestRefusedEntries(t *testing.T) {
	for name, entries := range map[string][]Entry{
		"empty key": {{Key: "", CreateRevision: 1, ModRevision: 1}},
		"out of order": {
			{Key: "/b", CreateRevision: 1, ModRevision: 1}, {Key: "/a", CreateRevision: 1, ModRevision: 1},
		},
		"twice": {
			{Key: "/b", CreateRevision: 1, ModRevision: 1}, {Key: "/b", CreateRevision: 1, ModRevision: 1},
		},
		"no revision":         {{Key: "/a"}},
		"above the snapshot":  {{Key: "/a", CreateRevision: 1, ModRevision: 1001}},
		"changed before made": {{Key: "/a", CreateRevision: 2, ModRevision: 1}},
		"negative deadline":   {{Key: "/a", CreateRevision: 1, ModRevision: 1, Deadline: -1}},
		"larger than a block": {{Key: "/a", CreateRevision: 1, ModRevision: 1, Value: make([]byte, blockfile.MaxPayload)}},
	} {
		w, err := NewWriter(io.Discard, testHeader)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			err = w.Write(e)
		}
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewWriter(io.Discard, Header{}); err == nil {
		t.Error("a snapshot of no revision was begun")
	}
}

// FuzzRead reads arbitrary files without a panic. Entries that are read must survive another write and read. The
// checksums are corrected first, because the reader would otherwise reject almost every file at once.
func FuzzRead(f *testing.F) {
	f.Add(write(f, testHeader, nil))
	f.Add(write(f, testHeader, []Entry{
		{Key: "/a", Value: []byte("one"), CreateRevision: 1, ModRevision: 2},
		{Key: "/b", Value: []byte("two"), CreateRevision: 3, ModRevision: 3, Deadline: 5},
	}))
	f.Fuzz(func(t *testing.T, file []byte) {
		for _, b := range [][]byte{file, withValidChecksums(file)} {
			h, entries, err := read(b)
			if err != nil {
				continue
			}
			h2, again, err := read(write(t, h, entries))
			if err != nil || !h2.Created.Equal(h.Created) || !reflect.DeepEqual(again, entries) {
				t.Errorf("%+v and %d entries became %+v and %d, %v", h, len(entries), h2, len(again), err)
			}
		}
	})
}

// withValidChecksums returns the file with corrected checksums of its blocks and a corrected SHA-256.
func withValidChecksums(file []byte) []byte {
	out := bytes.Clone(file)
	for at := magicLength; at+5 <= len(out); {
		n := int(binary.BigEndian.Uint32(out[at+1:]))
		end := at + 5 + n
		if n > blockfile.MaxPayload || end+4 > len(out) {
			return out
		}
		binary.BigEndian.PutUint32(out[end:], crc32.Checksum(out[at:end], crc32.MakeTable(crc32.Castagnoli)))
		if out[at] == kindTotals {
			return appendSum(out[:end+4])
		}
		at = end + 4
	}
	return out
}

func appendSum(b []byte) []byte {
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func BenchmarkWrite(b *testing.B) {
	value := make([]byte, 1000)
	b.SetBytes(1030)
	w, err := NewWriter(io.Discard, Header{Revision: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		if err := w.Write(
			Entry{Key: fmt.Sprintf("/registry/%020d", i), Value: value, CreateRevision: 1, ModRevision: 1},
		); err != nil {
			b.Fatal(err)
		}
	}
}
