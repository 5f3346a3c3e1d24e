// Package backup moves the state of an embedded store to files and back: to
// Keelson's own snapshots and to etcd's.
//
// # Restoring
//
// A file is from some time ago, and clients have seen more since. Whoever restores
// stamps every object anew, at revisions above all that any client can have seen,
// and compacts what lies below. So no client sees time go back: one that resumes a
// watch is told that its revision has expired, and lists again.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/keelson-dev/keelson/storage"
	"github.com/keelson-dev/keelson/storage/embedded"
	"github.com/keelson-dev/keelson/storage/snapshot"
)

// What a store may have done since the file was written, generously: more changes
// a second than the engine makes, and as many again for clocks that differ.
const (
	changesPerSecond = 100_000
	changesAtLeast   = 1_000_000_000
)

// Save writes the state e, which was opened at the time created, to w.
func Save(
	ctx context.Context, w io.Writer, e *embedded.Export, created time.Time, program string,
) (snapshot.Totals, error) {
	out, err := snapshot.NewWriter(w, snapshot.Header{Revision: e.Revision(), Created: created, Program: program})
	if err != nil {
		return snapshot.Totals{}, err
	}
	for r, err := range e.Records(ctx) {
		if err != nil {
			return snapshot.Totals{}, err
		}
		if err := out.Write(snapshot.Entry{
			Key: r.Key, Value: r.Value, CreateRevision: r.CreateRevision, ModRevision: r.ModRevision, Deadline: r.Deadline,
		}); err != nil {
			return snapshot.Totals{}, err
		}
	}
	return out.Close()
}

// Summary is what reading a whole snapshot shows.
type Summary struct {
	snapshot.Header
	snapshot.Totals
	SHA256 []byte
}

// Verify reads a snapshot to its end, checks all its checksums and calls each, if
// it is not nil, for its entries.
func Verify(r io.Reader, each func(snapshot.Entry)) (Summary, error) {
	in, err := snapshot.NewReader(r)
	if err != nil {
		return Summary{}, err
	}
	for {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			return Summary{in.Header(), in.Totals(), in.SHA256()}, nil
		}
		if err != nil {
			return Summary{}, err
		}
		if each != nil {
			each(e)
		}
	}
}

// RestoreOptions say how entries are stamped.
type RestoreOptions struct {
	// MinRevision is a revision that all new ones are above.
	MinRevision int64
	// Now is the time at which the restored store begins.
	Now time.Time
	// Keep leaves revisions as they are. It is right only if nobody has changed
	// anything since the file was written.
	Keep bool
}

// Restored says what a store was made of.
type Restored struct {
	From, Revision int64 // the file's revision, and the store's
	Entries        int64
}

// Restore makes a store from a snapshot, which it reads twice: it is verified
// before anything is written.
func Restore(ctx context.Context, r io.ReadSeeker, o embedded.Options, ro RestoreOptions) (Restored, error) {
	start, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return Restored{}, err
	}
	summary, err := Verify(r, nil)
	if err != nil {
		return Restored{}, err
	}
	if _, err := r.Seek(start, io.SeekStart); err != nil {
		return Restored{}, err
	}
	in, err := snapshot.NewReader(r)
	if err != nil {
		return Restored{}, err
	}
	source := source{revision: summary.Revision, created: summary.Created, entries: summary.Entries, records: entries(in)}
	return source.restore(ctx, o, ro)
}

func entries(in *snapshot.Reader) iter.Seq2[embedded.Record, error] {
	return func(yield func(embedded.Record, error) bool) {
		for {
			e, err := in.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			r := embedded.Record{Deadline: e.Deadline, Entry: storage.Entry{
				Key: e.Key, Value: e.Value, CreateRevision: e.CreateRevision, ModRevision: e.ModRevision,
			}}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// source is a state from elsewhere.
type source struct {
	revision int64
	created  time.Time
	entries  int64
	records  iter.Seq2[embedded.Record, error]
}

// restore makes a store of it.
func (s *source) restore(ctx context.Context, o embedded.Options, ro RestoreOptions) (Restored, error) {
	st := stamper{keep: ro.Keep, now: ro.Now.UnixMilli(), created: s.created.UnixMilli()}
	out := Restored{From: s.revision, Revision: max(s.revision, 1), Entries: s.entries}
	if ro.Keep {
		if ro.MinRevision > s.revision {
			return Restored{}, fmt.Errorf(
				"revisions cannot be kept and be above %d: the file is at %d", ro.MinRevision, s.revision,
			)
		}
	} else {
		base, err := jump(s.revision, s.created, ro)
		if err != nil {
			return Restored{}, err
		}
		st.next, out.Revision = base+1, base+max(s.entries, 1)
	}
	return out, embedded.Import(o, out.Revision, st.stamped(ctx, s.records))
}

// mostRevision is far beyond what a store gets to, and leaves it room to go on.
const mostRevision = 1 << 62

// jump returns the revision that all new ones are above.
func jump(revision int64, created time.Time, ro RestoreOptions) (int64, error) {
	since := max(int64(ro.Now.Sub(created)/time.Second), 0)
	if revision > mostRevision || ro.MinRevision > mostRevision {
		return 0, errors.New("the revision is too high for a store to go on from")
	}
	return max(revision+changesAtLeast+changesPerSecond*since, ro.MinRevision), nil
}

// stamper gives records their new revisions and deadlines.
type stamper struct {
	keep         bool
	next         int64
	now, created int64 // Unix milliseconds
}

func (s *stamper) stamped(
	ctx context.Context, records iter.Seq2[embedded.Record, error],
) iter.Seq2[embedded.Record, error] {
	return func(yield func(embedded.Record, error) bool) {
		for r, err := range records {
			if err == nil {
				err = ctx.Err()
			}
			if !s.keep {
				r.ModRevision, r.CreateRevision = s.next, s.next
				s.next++
			}
			r.Deadline = s.deadline(r.Deadline)
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// deadline keeps the time that was left when the file was written.
func (s *stamper) deadline(was int64) int64 {
	const never = 1<<63 - 1
	if was == 0 {
		return 0
	}
	left := max(was-s.created, 0)
	if left > never-s.now-1000 {
		return was
	}
	return s.now + left
}
