// Package backup saves the state of an embedded store to a file and restores it: from and to Keelson's own snapshots
// (backup.go) and etcd's snapshots (etcd.go).
//
// # Restoring
//
// A file is older than the data that clients have seen. Therefore a restore gives every object a new revision, above
// all revisions that a client can have seen, and compacts all lower revisions. So no client sees a lower revision than
// before. A client that resumes a watch gets the error that its revision has expired, and lists again.
//
// Example: a file of revision 5,000 with 3 objects, written an hour ago. The new revisions begin above 5,000 +
// 1,000,000,000 + 3,600 * 100,000 = 1,360,005,000: the objects get 1,360,005,001 to 1,360,005,003.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/snapshot"
)

// A restored store starts at a revision above all revisions that the old store can have reached since the file was
// written. The distance is the age of the file in seconds times changesPerSecond, which is more than the engine
// can make, plus minRevisionGap for clocks that differ.
const (
	changesPerSecond = 100_000
	minRevisionGap   = 1_000_000_000
)

// SaveOptions say what is written besides the state.
type SaveOptions struct {
	// Created is the time at which the Export was opened.
	Created time.Time
	// Program is the program that writes the file. Files are stored in the header.
	Program string
	Files   map[string][]byte
	// Past includes the old versions that the store keeps.
	Past bool
	// SkipLost leaves out the entries that a repair has put in place of lost data.
	SkipLost bool
}

// Save writes the state e to w.
func Save(ctx context.Context, w io.Writer, e *embedded.Export, o SaveOptions) (snapshot.Totals, error) {
	h := snapshot.Header{Revision: e.Revision(), Created: o.Created, Program: o.Program, Files: o.Files}
	if o.Past {
		h.PastFormat = embedded.PastFormat
	}
	out, err := snapshot.NewWriter(w, h)
	if err != nil {
		return snapshot.Totals{}, err
	}
	for r, err := range e.Records(ctx) {
		if err != nil {
			return snapshot.Totals{}, err
		}
		if o.SkipLost && embedded.IsLost(r.Value) {
			continue
		}
		if err := out.Write(snapshot.Entry{
			Key: r.Key, Value: r.Value, CreateRevision: r.CreateRevision, ModRevision: r.ModRevision, Deadline: r.Deadline,
		}); err != nil {
			return snapshot.Totals{}, err
		}
	}
	if !o.Past {
		return out.Close()
	}
	for r, err := range e.Past(ctx) {
		if err == nil {
			err = out.WritePast(snapshot.Past(r))
		}
		if err != nil {
			return snapshot.Totals{}, err
		}
	}
	return out.Close()
}

// Summary is the result of reading a whole snapshot.
type Summary struct {
	snapshot.Header
	snapshot.Totals
	SHA256 []byte
}

// Verify reads a snapshot to its end and verifies all checksums. It calls each for every entry if each is not nil.
func Verify(r io.Reader, each func(snapshot.Entry)) (Summary, error) {
	in, err := snapshot.NewReader(r)
	if err != nil {
		return Summary{}, err
	}
	for {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Summary{}, err
		}
		if each != nil {
			each(e)
		}
	}
	for {
		_, err := in.NextPast()
		if errors.Is(err, io.EOF) {
			return Summary{in.Header(), in.Totals(), in.SHA256()}, nil
		}
		if err != nil {
			return Summary{}, err
		}
	}
}

// RestoreOptions control the revisions of restored entries.
type RestoreOptions struct {
	// MinRevision is a lower bound: all new revisions are above it.
	MinRevision int64
	// Now is the time of the restore.
	Now time.Time
	// KeepRevisions keeps the revisions of the file. It is correct only if nothing was changed since the file was written.
	KeepRevisions bool
	// KeepDeadlines keeps the moments at which keys expire. Otherwise keys keep their remaining times to live.
	KeepDeadlines bool
	// By is the author that the restore records for its changes (storage.Txn.By), if the snapshot includes the
	// past.
	By []byte
}

// Restored is the result of a restore.
type Restored struct {
	From, Revision int64 // the revisions of the file and of the store
	Entries        int64
	Past           int64 // records of the past
	// Files are those of the header of a snapshot. Restore does not write them.
	Files map[string][]byte
}

// Restore creates a store from a snapshot. It reads the file twice: first to verify it, then to write the store.
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
	switch {
	case summary.PastFormat > embedded.PastFormat:
		return Restored{}, snapshot.ErrNewer
	case summary.PastFormat > 0:
		source.past = &embedded.Past{Records: pastRecords(in), At: ro.Now, By: ro.By}
	}
	restored, err := source.restore(ctx, o, ro)
	restored.Files, restored.Past = summary.Files, summary.Past
	return restored, err
}

// StoreState is what RestoreStore needs to know of the state besides the store.
type StoreState struct {
	// Time is when the last change was made. Remaining times to live, and the revisions that clients may have seen since, are counted
	// from then.
	Time time.Time
	// Seen is the highest revision that clients may have seen. The new revisions are above it, and above the one of the store. It matters
	// if the server went on after the state that is restored.
	Seen int64
	// Past is true if the new store gets the history of the store.
	Past bool
}

// RestoreStore creates a store in o.Dir from the state of another store, which stays as it is. It reads that twice: first to count the
// entries. If it fails because the new store cannot be written, from cannot be closed.
func RestoreStore(
	ctx context.Context, from *embedded.Reader, state StoreState, o embedded.Options, ro RestoreOptions,
) (out Restored, err error) {
	above, err := baseRevision(state.Seen, state.Time, ro)
	if err != nil {
		return out, err
	}
	ro.MinRevision = max(ro.MinRevision, above)
	entries, err := countEntries(ctx, from)
	if err != nil {
		return out, err
	}
	e, err := from.Export()
	if err != nil {
		return out, err
	}
	s, past := source{revision: e.Revision(), created: state.Time, entries: entries, records: e.Records(ctx)}, int64(0)
	if state.Past {
		s.past = &embedded.Past{At: ro.Now, By: ro.By, Records: func(yield func(embedded.PastRecord, error) bool) {
			for r, err := range e.Past(ctx) {
				past++
				if !yield(r, err) {
					return
				}
			}
		}}
	}
	if out, err = s.restore(ctx, o, ro); err != nil {
		return out, err // Import may still read e
	}
	out.Past = past
	return out, e.Close()
}

// countEntries returns the number of entries of a store.
func countEntries(ctx context.Context, from *embedded.Reader) (n int64, err error) {
	e, err := from.Export()
	if err != nil {
		return 0, err
	}
	for _, err := range e.Records(ctx) {
		if err != nil {
			return 0, errors.Join(err, e.Close())
		}
		n++
	}
	return n, e.Close()
}

// entries returns the entries of a snapshot as records. If an error occurs, it is the last element.
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

// pastRecords returns the records of the past of a snapshot. If an error occurs, it is the last element.
func pastRecords(in *snapshot.Reader) iter.Seq2[embedded.PastRecord, error] {
	return func(yield func(embedded.PastRecord, error) bool) {
		for {
			r, err := in.NextPast()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(embedded.PastRecord(r), err) || err != nil {
				return
			}
		}
	}
}

// source is a state to restore.
type source struct {
	revision int64
	created  time.Time
	entries  int64
	records  iter.Seq2[embedded.Record, error]
	past     *embedded.Past // nil: the file has no past
}

// restore creates a store with the state.
func (s *source) restore(ctx context.Context, o embedded.Options, ro RestoreOptions) (Restored, error) {
	st := restamper{keepRevisions: ro.KeepRevisions, now: ro.Now.UnixMilli(), created: s.created.UnixMilli()}
	out := Restored{From: s.revision, Revision: max(s.revision, 1), Entries: s.entries}
	if ro.KeepRevisions {
		if ro.MinRevision > s.revision {
			return Restored{}, fmt.Errorf(
				"revisions cannot be kept and be above %d: the file is at %d", ro.MinRevision, s.revision,
			)
		}
	} else {
		base, err := baseRevision(s.revision, s.created, ro)
		if err != nil {
			return Restored{}, err
		}
		st.next, out.Revision = base+1, base+max(s.entries, 1)
	}
	st.keepsPast, st.keepDeadlines = s.past != nil, ro.KeepDeadlines
	return out, embedded.Import(o, out.Revision, st.restamp(ctx, s.records), s.past)
}

// maxRevision is the highest revision of a file that can be restored. It is far above any revision that a store
// reaches, and leaves enough revisions for the restored store.
const maxRevision = 1 << 62

// baseRevision returns a revision that is lower than all new revisions.
func baseRevision(revision int64, created time.Time, ro RestoreOptions) (int64, error) {
	since := max(int64(ro.Now.Sub(created)/time.Second), 0)
	if revision > maxRevision || ro.MinRevision > maxRevision {
		return 0, errors.New("the revision is too high for a store to go on from")
	}
	return max(revision+minRevisionGap+changesPerSecond*since, ro.MinRevision), nil
}

// restamper gives records new revisions and deadlines.
type restamper struct {
	keepRevisions bool
	keepDeadlines bool
	next          int64
	now, created  int64 // Unix milliseconds
	// keepsPast means that the restore is recorded as one more change of each object, with a new revision. The
	// object keeps its create revision.
	keepsPast bool
}

// restamp returns records with their new revisions and deadlines. It ends with an error if ctx ends.
func (re *restamper) restamp(
	ctx context.Context, records iter.Seq2[embedded.Record, error],
) iter.Seq2[embedded.Record, error] {
	return func(yield func(embedded.Record, error) bool) {
		for r, err := range records {
			if err == nil {
				err = ctx.Err()
			}
			switch {
			case re.keepRevisions:
			case re.keepsPast:
				r.Was, r.ModRevision = r.ModRevision, re.next
			default:
				r.ModRevision, r.CreateRevision = re.next, re.next
			}
			re.next++
			r.Deadline = re.deadline(r.Deadline)
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// deadline returns a new deadline, so that a key has the same remaining time to live as when the file was written.
// was is the old deadline.
func (re *restamper) deadline(was int64) int64 {
	const never = 1<<63 - 1
	if was == 0 || re.keepDeadlines {
		return was
	}
	left := max(was-re.created, 0)
	if left > never-re.now-1000 {
		return was
	}
	return re.now + left
}
