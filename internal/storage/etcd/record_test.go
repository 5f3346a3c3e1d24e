package etcd

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

func TestRecord(t *testing.T) {
	at := time.UnixMilli(1_732_000_000_123)
	for _, r := range []record{
		{at: at, by: []byte{}},
		{at: at, by: []byte("somebody"), deadlines: []int64{at.UnixMilli(), at.UnixMilli() + 3_600_000}},
	} {
		got, err := decodeRecord(r.encode())
		if err != nil || !got.at.Equal(r.at) || !bytes.Equal(got.by, r.by) || !reflect.DeepEqual(got.deadlines, r.deadlines) {
			t.Errorf("%+v became %+v, %v", r, got, err)
		}
	}
	for _, b := range []string{
		"", "\x02\x01\x00", "\x01", "\x01\x05", "\x01\x05\x02\x01", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00",
	} {
		if r, err := decodeRecord([]byte(b)); err == nil {
			t.Errorf("%q is %+v", b, r)
		}
	}
}

// TestCertainChanges checks which transactions get a record: it must not make a change of one that changes nothing.
func TestCertainChanges(t *testing.T) {
	gone, put := storage.Delete("/registry/a"), storage.Put("/registry/b", nil)
	seen := []storage.Condition{{Key: "/registry/a", ModRevision: 5}}
	for i, c := range []struct {
		txn  storage.Txn
		want bool
	}{
		{storage.Txn{}, false},
		{storage.Txn{Conditions: seen}, false},
		{storage.Txn{Ops: []storage.Op{gone}}, false},
		{storage.Txn{Ops: []storage.Op{gone}, Conditions: []storage.Condition{{Key: "/registry/a"}}}, false},
		{storage.Txn{Ops: []storage.Op{gone}, Conditions: seen}, true},
		{storage.Txn{Ops: []storage.Op{gone, put}}, true},
	} {
		if got := changes(&c.txn); got != c.want {
			t.Errorf("transaction %d: %v", i, got)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add((&record{at: time.UnixMilli(5), by: []byte("x"), deadlines: []int64{7}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeRecord(b); err == nil {
			if again, err := decodeRecord(r.encode()); err != nil || !reflect.DeepEqual(again, r) {
				t.Errorf("%+v became %+v, %v", r, again, err)
			}
		}
	})
}
