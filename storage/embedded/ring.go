package embedded

import (
	"strings"

	"github.com/keelson-dev/keelson/storage"
)

// record is what one revision changed. It is immutable once published.
type record struct {
	revision int64
	events   []storage.Event
}

// eventOverhead is what an event costs in memory beside keys and values.
const eventOverhead = 160

// size estimates the bytes a record keeps alive.
func (r *record) size() int {
	n := eventOverhead
	for i := range r.events {
		e := &r.events[i]
		n += eventOverhead + len(e.Entry.Key) + len(e.Entry.Value) + len(e.Prev.Value)
	}
	return n
}

// ring holds the latest records, with contiguous revisions, within a bound of
// bytes. It is a plain data structure: its owner locks. The newest record is
// always kept, however large.
type ring struct {
	records []*record // live ones; the array may have dead ones before it
	dead    int       // dead ones in the array before records
	bytes   int
	limit   int
	next    int64 // the revision after the newest record
}

func newRing(limit int, next int64) *ring { return &ring{limit: limit, next: next} }

// first is the revision of the oldest record, next if there is none.
func (r *ring) first() int64 { return r.next - int64(len(r.records)) }

func (r *ring) append(rec *record) {
	if rec.revision != r.next {
		panic("embedded: ring records must be contiguous")
	}
	before := cap(r.records)
	r.records = append(r.records, rec)
	if cap(r.records) != before {
		r.dead = 0 // append moved the live ones to a new array
	}
	r.next++
	r.bytes += rec.size()
	drop := 0
	for r.bytes > r.limit && drop < len(r.records)-1 {
		r.bytes -= r.records[drop].size()
		drop++
	}
	r.records = r.records[drop:]
	r.dead += drop
	if r.dead > 64 && r.dead > len(r.records) {
		// Dead records are shared with views and cannot be cleared in place.
		r.records = append(make([]*record, 0, 2*len(r.records)), r.records...)
		r.dead = 0
	}
}

// from returns the records from revision on, which must be at least first. The
// slice is shared and immutable.
func (r *ring) from(revision int64) []*record {
	if revision >= r.next {
		return nil
	}
	return r.records[revision-r.first() : len(r.records) : len(r.records)]
}

// Bounds of one Batch: a batch ends with the revision that reaches either.
const (
	batchEvents = 512
	batchBytes  = 1 << 20
)

// collect gathers the events of records under prefix into a batch. It looks at
// all records unless the batch becomes full; Revision is the last one looked at.
func collect(records []*record, prefix string) storage.Batch {
	var b storage.Batch
	size := 0
	for _, rec := range records {
		b.Revision = rec.revision
		n := matching(rec.events, prefix)
		if n == 0 {
			continue
		}
		size += rec.size()
		switch {
		case n == len(rec.events) && len(b.Events) == 0:
			b.Events = rec.events[:n:n] // shared; append copies
		case n == len(rec.events):
			b.Events = append(b.Events, rec.events...)
		default:
			for _, e := range rec.events {
				if strings.HasPrefix(e.Entry.Key, prefix) {
					b.Events = append(b.Events, e)
				}
			}
		}
		if len(b.Events) >= batchEvents || size >= batchBytes {
			break
		}
	}
	return b
}

func matching(events []storage.Event, prefix string) int {
	n := 0
	for i := range events {
		if strings.HasPrefix(events[i].Entry.Key, prefix) {
			n++
		}
	}
	return n
}
