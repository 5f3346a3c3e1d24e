package embedded

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// revisionSamples remember which revision was current at which uptime (see storeClock), to tell which revision leaves
// the history window. They are saved in the database, so that history leaves the window even if every process runs for
// less time than the window.
//
// Example: with the samples (10:00, revision 5), (10:02, revision 9), (10:04, revision 12) and a window of five
// minutes, at 10:08 the state since 10:03 must be readable. Revision 9 was the current one at 10:03, so every
// version that was replaced at revision 9 or earlier can be deleted: expire(10:03) returns 9 and removes the first
// sample.
type revisionSamples struct {
	samples []revisionSample // at least one, in ascending order
	// spacing is the shortest time between two samples, which limits their number.
	spacing time.Duration
}

// revisionSample records that revision was the current one at uptime.
type revisionSample struct {
	uptime   time.Duration
	revision int64
}

// samplesPerWindow is the number of samples for a window, and so the precision with which the window is measured.
const samplesPerWindow = 64

// newRevisionSamples returns samples for a window. revision is the current revision, and now the present uptime.
// saved are the samples of earlier processes. Samples with a higher revision are dropped, and later times are set
// to now.
func newRevisionSamples(
	window time.Duration, saved []revisionSample, now time.Duration, revision int64,
) *revisionSamples {
	r := &revisionSamples{spacing: window / samplesPerWindow}
	for _, s := range saved {
		if s.revision <= revision {
			r.samples = append(r.samples, revisionSample{min(s.uptime, now), s.revision})
		}
	}
	if len(r.samples) == 0 {
		r.samples = []revisionSample{{now, revision}}
	}
	r.add(now, revision)
	return r
}

// add records that revision is current at now, and reports whether that changed the samples.
func (r *revisionSamples) add(now time.Duration, revision int64) bool {
	last := &r.samples[len(r.samples)-1]
	switch {
	case revision == last.revision: // the revision became current at last.uptime or earlier
		return false
	case now <= last.uptime:
		last.revision = revision
	case now < last.uptime+r.spacing: // a later sample will cover it
		return false
	default:
		r.samples = append(r.samples, revisionSample{now, revision})
	}
	return true
}

// expire returns the newest revision that was current at or before t, 0 if none is known, and removes older samples.
func (r *revisionSamples) expire(t time.Duration) int64 {
	n := 0
	for n < len(r.samples) && r.samples[n].uptime <= t {
		n++
	}
	if n == 0 {
		return 0
	}
	r.samples = append(r.samples[:0], r.samples[n-1:]...)
	return r.samples[0].revision
}

func (r *revisionSamples) encode() []byte {
	var b []byte
	for _, k := range r.samples {
		b = binary.AppendUvarint(b, uint64(k.uptime.Milliseconds()))
		b = binary.AppendUvarint(b, uint64(k.revision))
	}
	return b
}

// decodeSamples decodes samples. It fails with errCorrupt if they are not in ascending order.
func decodeSamples(b []byte) (list []revisionSample, err error) {
	for len(b) > 0 {
		var ms, revision int64
		if ms, b, err = cutUvarint(b); err == nil {
			revision, b, err = cutUvarint(b)
		}
		if err != nil {
			return nil, err
		}
		k, last := revisionSample{time.Duration(ms) * time.Millisecond, revision}, revisionSample{}
		if len(list) > 0 {
			last = list[len(list)-1]
		}
		if ms > math.MaxInt64/int64(time.Millisecond) || k.uptime < last.uptime || revision < last.revision {
			return nil, fmt.Errorf("%w: marks", errCorrupt)
		}
		list = append(list, k)
	}
	return list, nil
}

// loadSamples reads the samples that an earlier process saved.
func (c *compactor) loadSamples(revision int64) error {
	var saved []revisionSample
	err := c.db.meta(metaSamples, func(b []byte) (err error) { saved, err = decodeSamples(b); return err })
	if err != nil {
		return err
	}
	up := c.clock.readUptime()
	c.windowSamples = newRevisionSamples(c.db.opts.HistoryWindow, saved, up, revision)
	c.lowSpaceSamples = newRevisionSamples(lowSpaceWindow, nil, up, revision)
	return c.holder.load(c.db)
}

// saveSamples saves the samples, the clock to which their times belong, and what is held. The write is not synced: after a
// power cut history is kept a little longer.
func (c *compactor) saveSamples() {
	if !c.db.mayWrite() {
		return
	}
	b := c.db.NewBatch()
	defer b.Close()
	mustSucceed(b.Set([]byte(metaSamples), c.windowSamples.encode(), nil))
	mustSucceed(b.Set([]byte(metaClock), c.clock.snapshot().encode(), nil))
	c.holder.save(b, c.hub.written.Load())
	_ = c.db.applyUnsynced(b) // a failure stops the store and is logged there
}
