package etcdfile

import (
	"bytes"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// sample are entries in the order of their revisions, which is not that of their keys.
func sample() []Entry {
	return []Entry{
		{Key: "/registry/pods/b", Value: []byte("two"), CreateRevision: 2, ModRevision: 5},
		{Key: "/registry/pods/a", Value: []byte("one"), CreateRevision: 6, ModRevision: 6, TTL: 60},
		{Key: "/registry/pods/c", Value: []byte{}, CreateRevision: 6, ModRevision: 6},
		{Key: "/other", Value: []byte("x"), CreateRevision: 7, ModRevision: 7, TTL: 60},
	}
}

// sequence yields entries, and then an error unless it is nil.
func sequence(entries []Entry, err error) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(Entry{}, err)
		}
	}
}

// written returns the path of a file of a member at revision 9 with these entries.
func written(t *testing.T, entries []Entry) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "snapshot.db")
	if err := Write(path, 9, sequence(entries, nil)); err != nil {
		t.Fatal(err)
	}
	return path
}

// read returns the entries below /registry/ of a file.
func read(path string, skipHash bool) (entries []Entry, f *File, err error) {
	if f, err = Open(path, "/registry/", skipHash); err != nil {
		return nil, nil, err
	}
	for e, failed := range f.Entries() {
		if err = failed; err == nil {
			e.Value = bytes.Clone(e.Value)
			entries = append(entries, e)
		}
	}
	return entries, f, errors.Join(err, f.Close())
}

// TestKeyOfTheServer checks that a key that says who has made changes is not taken for an object.
func TestKeyOfTheServer(t *testing.T) {
	record := Entry{Key: "/registry/.keelson/written", Value: []byte("x"), CreateRevision: 4, ModRevision: 9}
	list, f, err := read(written(t, append(sample(), record)), false)
	if err != nil || len(list) != 3 || f.Others() != 2 {
		t.Errorf("%d keys, %d others, %v", len(list), f.Others(), err)
	}
}

func TestRoundTrip(t *testing.T) {
	all := sample()
	for _, entries := range [][]Entry{all, {all[3], all[2], all[1], all[0]}} { // the order must not matter
		got, f, err := read(written(t, entries), false)
		if err != nil {
			t.Fatal(err)
		}
		want := []Entry{all[1], all[0], all[2]} // by key
		for i := range got {
			if len(got[i].Value) == 0 {
				got[i].Value = []byte{}
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		if f.Revision() != 9 || f.Len() != 3 || f.Others() != 1 {
			t.Errorf("revision %d, %d keys, %d others", f.Revision(), f.Len(), f.Others())
		}
	}
}

// TestManyKeys writes more keys than one transaction takes.
func TestManyKeys(t *testing.T) {
	var entries []Entry
	for i := range writeKeys + 1 {
		key := "/registry/" + string([]byte{byte('a' + i>>12), byte('a' + i>>8&15), byte('a' + i>>4&15), byte('a' + i&15)})
		entries = append(entries, Entry{Key: key, Value: []byte("v"), CreateRevision: 3, ModRevision: 3})
	}
	got, _, err := read(written(t, entries), false)
	if err != nil || len(got) != len(entries) ||
		!slices.IsSortedFunc(got, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) }) {
		t.Errorf("%d of %d keys, or not in order: %v", len(got), len(entries), err)
	}
}

func TestWriteRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot.db")
	broken := errors.New("broken")
	if err := Write(path, 9, sequence(sample(), broken)); !errors.Is(err, broken) {
		t.Errorf("an error of the source: %v", err)
	}
	for _, revision := range []int64{0, 10} {
		path := filepath.Join(t.TempDir(), "snapshot.db")
		err := Write(path, 9, sequence([]Entry{{Key: "a", ModRevision: revision}}, nil))
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("an entry of revision %d in a member at 9: %v", revision, err)
		}
	}
}

// TestHash changes and cuts the file. A file without a correct SHA-256 is refused. Without the check, damage
// causes an error, but no panic.
func TestHash(t *testing.T) {
	path := written(t, sample())
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize() // bbolt uses this page size too
	flipped := bytes.Clone(whole)
	flipped[bytes.Index(flipped, []byte("two"))]++
	for name, test := range map[string]struct {
		content  []byte
		damaged  bool // false: the error says that the file has no hash
		readable bool // whether the file can be read without the check
	}{
		"a changed value":       {flipped, true, true},
		"a wrong hash":          {append(bytes.Clone(whole[:len(whole)-1]), whole[len(whole)-1]+1), true, true},
		"no hash":               {whole[:len(whole)-hashLength], false, true},
		"two pages":             {whole[:2*page], false, false},
		"two pages with a hash": {append(bytes.Clone(whole[:2*page]), whole[len(whole)-hashLength:]...), true, false},
		"nothing":               {nil, false, true}, // bbolt opens an empty file for writing only
		"no database":           {bytes.Repeat([]byte("x"), 4096), false, false},
		"zeros":                 {make([]byte, 32768+hashLength), true, false},
		"the hash alone":        {whole[len(whole)-hashLength:], false, false},
		"one byte is missing":   {whole[:len(whole)-1], false, true},
		"a byte more":           {append(bytes.Clone(whole), 0), false, true},
		"a page of garbage": {
			slices.Concat(whole[:2*page], bytes.Repeat([]byte{0xff}, page), whole[3*page:]), true, false,
		},
	} {
		if err := os.WriteFile(path, test.content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := read(path, false)
		if err == nil || errors.Is(err, ErrDamaged) != test.damaged {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := read(path, true); name != "nothing" && (err == nil) != test.readable {
			t.Errorf("%s, without the check: %v", name, err)
		}
	}
}

// TestDamagedContents changes the database in a file with bbolt, and reads the file without the check of the hash.
func TestDamagedContents(t *testing.T) {
	put := func(bucket string, key, value []byte) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucket)).Put(key, value) }
	}
	kv := func(key string, at int64) []byte {
		b, err := proto.Marshal(protoadapt.MessageV2Of(&mvccpb.KeyValue{Key: []byte(key), ModRevision: at, CreateRevision: at}))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, test := range map[string]struct {
		change func(*bolt.Tx) error
		keys   int    // number of keys that can be read
		want   string // a part of the error
	}{
		"nothing changes": {func(*bolt.Tx) error { return nil }, 3, ""},
		"a deletion": {
			put(bucketKey, append(revision{10, 0}.bytes(), tombstoneMark), kv("/registry/pods/a", 0)), 2, "",
		},
		"a newer version":       {put(bucketKey, revision{10, 0}.bytes(), kv("/registry/pods/a", 10)), 3, ""},
		"a key of another form": {put(bucketKey, []byte("short"), kv("/registry/pods/a", 10)), 0, "a revision of the form 73686f7274"},
		"a value of no message": {put(bucketKey, revision{10, 0}.bytes(), []byte{0xff}), 0, "revision 10: "},
		"another revision": {
			put(bucketKey, revision{10, 0}.bytes(), kv("/registry/pods/a", 4)), 0, "says that it is of revision 4 and lies at 10",
		},
		"no lease": {
			func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(bucketLease)) }, 0, "has the lease 1000000003c, which is not there",
		},
		"no keys":              {func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(bucketKey)) }, 0, `it has no bucket "key"`},
		"no numbers":           {func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(bucketMeta)) }, 0, `it has no bucket "meta"`},
		"a compaction of none": {put(bucketMeta, []byte(metaFinishedCompact), []byte("x")), 0, "a revision of the form 78"},
		"a lease of no message": {
			put(bucketLease, []byte("12345678"), []byte{0xff}), 0, "a lease cannot be read",
		},
	} {
		path := written(t, sample())
		db, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Update(test.change), db.Close()); err != nil {
			t.Fatal(name, err)
		}
		got, _, err := read(path, true)
		if test.want == "" && (err != nil || len(got) != test.keys) {
			t.Errorf("%s: %d keys, want %d: %v", name, len(got), test.keys, err)
		}
		if test.want != "" && (!errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

// TestLease decodes encoded leases. A lease with a remaining time uses it instead of its TTL.
func TestLease(t *testing.T) {
	for _, test := range []struct {
		lease lease
		left  int64
	}{{lease{1, 60, 0}, 60}, {lease{2, 60, 7}, 7}, {lease{}, 0}} {
		got, err := decodeLease(test.lease.encode())
		if err != nil || got != test.lease || got.secondsLeft() != test.left {
			t.Errorf("%+v: %+v, %d seconds left, %v", test.lease, got, got.secondsLeft(), err)
		}
	}
}
