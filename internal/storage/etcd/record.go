package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keelson-dev/keelson/internal/storage"
)

// recordKey is the key that says who has made a transaction, and when. Commit writes it in the same transaction (Options.Records), so that
// its event has the same revision as the changes. All servers of a cluster overwrite the one key, so nothing grows. It is below the prefix
// of API objects, so that one watch has both; no resource has such a name.
const recordKey = root + ".keelson/written"

// record is the value of recordKey.
type record struct {
	// at is when the transaction was made, to the millisecond, by the clock of the server that has made it.
	at time.Time
	// by is storage.Txn.By.
	by []byte
	// deadlines are the times, in Unix milliseconds, at which the keys expire that have a time to live, in the order of the operations.
	deadlines []int64
}

// encode returns the value: the format (one byte, 1), the time in milliseconds, the number of deadlines, their differences from the time in
// milliseconds, all as uvarints, and the author.
func (r *record) encode() []byte {
	const format = 1
	ms := r.at.UnixMilli()
	b := binary.AppendUvarint([]byte{format}, uint64(ms))
	b = binary.AppendUvarint(b, uint64(len(r.deadlines)))
	for _, d := range r.deadlines {
		b = binary.AppendUvarint(b, uint64(d-ms))
	}
	return append(b, r.by...)
}

var errRecord = errors.New("etcd: the record of who has made a transaction cannot be read")

// decodeRecord decodes what encode returns.
func decodeRecord(b []byte) (r record, err error) {
	if len(b) == 0 || b[0] != 1 {
		return r, errRecord
	}
	b = b[1:]
	next := func(limit uint64) (v uint64) {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > limit {
			err = errRecord
			return 0
		}
		b = b[n:]
		return v
	}
	ms := next(math.MaxInt64 / 2)
	for count := next(uint64(len(b))); count > 0 && err == nil; count-- {
		r.deadlines = append(r.deadlines, int64(ms+next(math.MaxInt64/2)))
	}
	if err != nil {
		return record{}, err
	}
	r.at, r.by = time.UnixMilli(int64(ms)), b
	return r, nil
}

// withRecord appends the record of a transaction to its operations. A transaction that perhaps changes nothing, because it only deletes
// keys of which it is not known whether they exist, has none: the record would make it a change.
func (s *Store) withRecord(ops []clientv3.Op, txn *storage.Txn) []clientv3.Op {
	if !s.opts.Records || !changes(txn) {
		return ops
	}
	r := record{at: s.opts.Now(), by: txn.By}
	for _, op := range txn.Ops {
		if !op.Delete && op.TTL > 0 {
			r.deadlines = append(r.deadlines, r.at.Add(time.Duration(op.TTL+1)*time.Second).Truncate(time.Second).UnixMilli())
		}
	}
	key, _ := s.keys.toEtcd(recordKey) // it is valid
	return append(ops, clientv3.OpPut(key, string(r.encode())))
}

// changes reports whether a transaction certainly changes something if its conditions hold.
func changes(txn *storage.Txn) bool {
	for _, op := range txn.Ops {
		if !op.Delete {
			return true
		}
		for _, c := range txn.Conditions {
			if c.Key == op.Key && c.ModRevision > 0 {
				return true
			}
		}
	}
	return false
}

// Following is a cursor in the changes of all keys of API objects, which knows who has made them and when. It is used by one goroutine;
// only Close and RequestProgress may be called from another one.
type Following struct{ *watcher }

// Follow returns the changes from a revision on, as Watch does.
func (s *Store) Follow(ctx context.Context, from int64) (Following, error) {
	w, err := s.watch(ctx, s.keys.span(root, storage.PrefixEnd(root)), from, true)
	return Following{w}, err
}

// Next returns the changes of the next revisions, in their order. All changes up to through have been returned then. Time, By and Deadline
// are those that Commit has recorded. Changes of other programs, and those that etcd makes when a lease ends, have no time; then the
// deadline is not known either, and Lease says whether there is one.
func (f Following) Next(ctx context.Context) (list []storage.Change, through int64, err error) {
	b, err := f.watcher.Next(ctx)
	if err != nil {
		return nil, 0, err
	}
	list = make([]storage.Change, 0, len(b.Events))
	first := 0 // of the revision
	for _, e := range b.Events {
		if first < len(list) && list[first].Entry.ModRevision != e.Entry.ModRevision {
			first = len(list)
		}
		if e.Entry.Key != recordKey {
			list = append(list, storage.Change{Event: e})
			continue
		}
		r, err := decodeRecord(e.Entry.Value)
		if e.Deleted || err != nil {
			continue // somebody else has written to the key
		}
		r.describe(list[first:])
	}
	return list, b.Revision, nil
}

// describe sets the time, the author and the deadlines of the changes of a transaction. The record is the last one of its operations.
func (r *record) describe(list []storage.Change) {
	deadlines := r.deadlines
	for i := range list {
		c := &list[i]
		if c.Time, c.By = r.at, r.by; c.Lease != 0 && len(deadlines) > 0 {
			c.Deadline, deadlines = deadlines[0], deadlines[1:]
		}
	}
}
