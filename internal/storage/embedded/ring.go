package embedded

import (
	"strings"

	"github.com/keelson-dev/keelson/internal/storage"
)

// record contains the changes of one revision. It is immutable after it was published.
type record struct {
	revision int64
	events   []storage.Event
}

// eventOverhead is the memory of an event without its keys and values, in bytes.
const eventOverhead = 160

// size estimates how many bytes of memory r keeps alive.
func (r *record) size() int {
	n := eventOverhead
	for i := range r.events {
		e := &r.events[i]
		n += eventOverhead + len(e.Entry.Key) + len(e.Entry.Value) + len(e.Prev.Value)
	}
	return n
}

// ring keeps the latest records, whose revisions have no gaps, within a limit of bytes. It has no lock; the caller
// locks. The newest record is always kept, whatever its size.
type ring struct {
	records []*record // the array may have dropped records before the slice
	dropped int       // number of dropped records in the array
	bytes   int
	limit   int
	next    int64 // the revision after the newest record
}

// newRing returns an empty ring. limit is in bytes, and next is the revision of the first record.
func newRing(limit int, next int64) *ring { return &ring{limit: limit, next: next} }

// first returns the revision of the oldest record, or next if there is none.
func (r *ring) first() int64 { return r.next - int64(len(r.records)) }

// append adds rec as the newest record, and drops the oldest ones until the limit is met. If revisions are left out before rec, as in a
// store that follows another one, it drops all older records.
func (r *ring) append(rec *record) {
	switch {
	case rec.revision < r.next:
		panic("embedded: ring records must be in order")
	case rec.revision > r.next:
		*r = *newRing(r.limit, rec.revision)
	}
	before := cap(r.records)
	r.records = append(r.records, rec)
	if cap(r.records) != before {
		r.dropped = 0 // append copied records to a new array
	}
	r.next++
	r.bytes += rec.size()
	drop := 0
	for r.bytes > r.limit && drop < len(r.records)-1 {
		r.bytes -= r.records[drop].size()
		drop++
	}
	r.records = r.records[drop:]
	r.dropped += drop
	if r.dropped > 64 && r.dropped > len(r.records) {
		// The array is shared with slices that from has returned, so dropped records cannot be cleared in it.
		r.records = append(make([]*record, 0, 2*len(r.records)), r.records...)
		r.dropped = 0
	}
}

// from returns the records from revision on. revision must be at least first. The slice is shared and immutable.
func (r *ring) from(revision int64) []*record {
	if revision >= r.next {
		return nil
	}
	return r.records[revision-r.first() : len(r.records) : len(r.records)]
}

// These constants limit a Batch: it ends with the revision that reaches one of them.
const (
	batchEvents = 512
	batchBytes  = 1 << 20
)

// collect returns a batch with the events of records whose keys have prefix. It stops at a record when the batch is
// full. The Revision of the batch is that of the last record that was examined.
func collect(records []*record, prefix string) storage.Batch {
	var b storage.Batch
	size := 0
	for _, rec := range records {
		b.Revision = rec.revision
		n := countMatching(rec.events, prefix)
		if n == 0 {
			continue
		}
		size += rec.size()
		switch {
		case n == len(rec.events) && len(b.Events) == 0:
			b.Events = rec.events[:n:n] // shared with the record; a later append copies
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

// countMatching returns the number of events whose keys have prefix.
func countMatching(events []storage.Event, prefix string) int {
	n := 0
	for i := range events {
		if strings.HasPrefix(events[i].Entry.Key, prefix) {
			n++
		}
	}
	return n
}
