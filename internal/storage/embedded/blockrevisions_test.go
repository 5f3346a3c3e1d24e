package embedded

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

// TestReadsSkipNewerBlocks: a range at an old revision returns the same as before, and does not read blocks that
// have only newer versions.
func TestReadsSkipNewerBlocks(t *testing.T) {
	ctx := t.Context()
	s, err := Open(Options{InMemory: true, HistoryWindow: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	random := rand.New(rand.NewPCG(1, 2))
	state, states := map[string]string{}, map[int64]string{}
	write := func(times int) (last int64) {
		for i := range times {
			key := fmt.Sprintf("/k/%03d", random.IntN(200))
			op := storage.Put(key, []byte(strings.Repeat("x", 500)+fmt.Sprint(i)))
			if state[key] != "" && random.IntN(10) == 0 {
				op = storage.Delete(key)
			}
			if state[key] = string(op.Value); op.Delete {
				delete(state, key)
			}
			if last, err = s.Commit(ctx, storage.Txn{Ops: []storage.Op{op}}); err != nil {
				t.Fatal(err)
			}
			if i%97 == 0 || i == times-1 {
				states[last] = fmt.Sprint(state)
			}
		}
		return last
	}
	old := write(4000)
	if err := s.db.Compact(ctx, []byte{prefixVersion}, []byte{prefixVersion + 1}, false); err != nil {
		t.Fatal(err)
	}
	write(8000)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	for revision, want := range states {
		result, err := s.Range(ctx, storage.RangeRequest{Start: "/k/", End: "/k0", Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, e := range result.Entries {
			got[e.Key] = string(e.Value)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("at %d there are %d keys, which differ from the state then", revision, len(got))
		}
	}
	read := func(filters []pebble.BlockPropertyFilter) uint64 {
		it, err := s.db.NewIter(&pebble.IterOptions{
			LowerBound: []byte{prefixVersion}, UpperBound: []byte{prefixVersion + 1}, PointKeyFilters: filters,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer it.Close()
		r := storage.RangeResult{Revision: old}
		if err := scan(ctx, it, storage.RangeRequest{}, &r); err != nil {
			t.Fatal(err)
		}
		return it.Stats().InternalStats.BlockBytes
	}
	if all, few := read(nil), read(upTo(old)); few > all/2 {
		t.Errorf("%d bytes of blocks are read, without the filter %d", few, all)
	}
}

// TestTablesWithoutRevisions: tables of an older program, which do not have the property, are not skipped.
func TestTablesWithoutRevisions(t *testing.T) {
	o := Options{Dir: "store", FS: vfs.NewMem()}.withDefaults()
	open := func(change func(*pebble.Options)) *pebble.DB {
		options := o.pebbleOptions(pebble.DefaultLogger, nil)
		change(options)
		db, err := pebble.Open(o.Dir, options)
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := open(func(p *pebble.Options) { p.BlockPropertyCollectors = nil })
	for revision := range int64(10) {
		v := version{create: 1, value: []byte("x")}
		b := make([]byte, v.size())
		v.encode(b)
		if err := db.Set(appendVersionKey(nil, "/a", revision+1), b, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(func(*pebble.Options) {})
	defer db.Close()
	it, err := db.NewIter(&pebble.IterOptions{PointKeyFilters: upTo(3)})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	r := storage.RangeResult{Revision: 3}
	if err := scan(context.Background(), it, storage.RangeRequest{}, &r); err != nil || len(r.Entries) != 1 || r.Entries[0].ModRevision != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}
