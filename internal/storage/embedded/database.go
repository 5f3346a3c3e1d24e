package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// database is the Pebble database of a store. It reads the records that are not versions (layout.go), and makes
// the writes of background work. It has no lock: its callers have entered the lifetime of the store, or are
// goroutines of the store.
type database struct {
	*pebble.DB
	opts  *Options
	space *diskSpace
	// pipeline stops the store when a background write has failed. It is nil until the store has started.
	pipeline *pipeline
}

// mayWrite reports whether background work may write: the store has not failed, and free space is not critically
// low.
func (d *database) mayWrite() bool {
	return d.pipeline.failure.Load() == nil && d.space.level.Load() != spaceCritical
}

// position reads the current revision, the compaction revision and the format number from the database. format is 0 if
// the database is new. It fails with ErrNewerFormat if the format is newer than formatVersion.
func (d *database) position() (revision, compacted, format int64, err error) {
	if format, err = d.number(metaFormat); err != nil {
		return 0, 0, 0, err
	}
	if format > formatVersion {
		return 0, 0, 0, fmt.Errorf(
			"data directory %s: %w: %d, this program knows %d", d.opts.Dir, ErrNewerFormat, format, formatVersion,
		)
	}
	if compacted, err = d.number(metaCompacted); err != nil {
		return 0, 0, 0, err
	}
	last, err := d.lastLogRevision()
	if err != nil {
		return 0, 0, 0, err
	}
	return max(last, compacted, 1), compacted, format, nil
}

// meta decodes the meta record of that name, if there is one. The bytes are valid during the call of decode.
func (d *database) meta(name string, decode func([]byte) error) error {
	b, closer, err := d.Get([]byte(name))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = errors.Join(decode(b), closer.Close())
	}
	if err != nil {
		return fmt.Errorf("data directory %s: reading %s: %w", d.opts.Dir, name, err)
	}
	return nil
}

// number returns the number in the meta record with this name, 0 if there is no such record.
func (d *database) number(name string) (n int64, err error) {
	err = d.meta(name, func(b []byte) (err error) { n, err = decodeNumber(b); return err })
	return n, err
}

// lastLogRevision returns the revision of the last log record, 0 if there is none.
func (d *database) lastLogRevision() (int64, error) {
	it, err := d.NewIter(logSpan())
	if err != nil {
		return 0, err
	}
	defer it.Close()
	if !it.Last() {
		return 0, it.Error()
	}
	return parseLogKey(it.Key())
}

// savedClock returns the clock that an earlier process saved; nil if there is none.
func (d *database) savedClock() (saved *savedClock, err error) {
	err = d.meta(metaClock, func(b []byte) error {
		c, err := decodeClock(b)
		saved = &c
		return err
	})
	return saved, err
}

// kept returns the state of the history that is kept beyond the compaction revision (type kept), as an earlier
// process saved it. The result is zero if there is no such record.
func (d *database) kept() (k kept, err error) {
	err = d.meta(metaKept, func(b []byte) (err error) { k, err = decodeKept(b); return err })
	return k, err
}

// writtenAt returns when and by whom a revision was written. The result is zero if the log has no record of it.
func (d *database) writtenAt(revision int64) (written, error) {
	value, closer, err := d.Get(logKey(revision))
	if errors.Is(err, pebble.ErrNotFound) {
		return written{}, nil
	}
	if err != nil {
		return written{}, err
	}
	defer closer.Close()
	w, _, err := cutWritten(value)
	w.by = bytes.Clone(w.by)
	return w, err
}

// logSpan returns options for an iterator over the log.
func logSpan() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{prefixLog}, UpperBound: []byte{prefixLog + 1}}
}

// loggedAt returns the newest revision in the log that was written at t or before, 0 if there is none. newest is
// the durable revision. It is a binary search.
func (d *database) loggedAt(ctx context.Context, t time.Time, newest int64) (int64, error) {
	it, err := d.NewIterWithContext(ctx, logSpan())
	if err != nil {
		return 0, err
	}
	defer it.Close()
	found, now := int64(0), d.opts.Clock().UnixMilli()
	for low, high := int64(1), newest; low <= high; {
		middle := low + (high-low)/2
		if !it.SeekGE(logKey(middle)) {
			if err := it.Error(); err != nil {
				return 0, err
			}
			high = middle - 1
			continue
		}
		revision, w, err := currentWritten(it)
		if err == nil && revision <= high {
			w.ms, err = writtenBefore(it, revision, w.ms, now, newest)
		}
		switch {
		case err != nil:
			return 0, err
		case revision > high || w.ms > t.UnixMilli():
			high = middle - 1
		default:
			found, low = revision, revision+1
		}
	}
	return found, nil
}

// newestVersions implements planner.view.
func (d *database) newestVersions() (versionReader, error) {
	it, err := d.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return nil, err
	}
	return &iterReader{it: it}, nil
}

// checkLogRecords returns an ErrDataLost if revisions are missing in the log above the compaction revision. That
// happens if the end of the database's manifest is cut off: the tables that this part named are lost, but the
// newer log files are still read. The gap ends where these files begin, so only the records that they can contain
// are examined. logBytes is the size of the log files before the database was opened. The log files contain each
// key twice: in the log record and in the version.
func (d *database) checkLogRecords(compacted, logBytes int64) error {
	it, err := d.NewIter(&pebble.IterOptions{
		LowerBound: logKey(compacted + 1), UpperBound: []byte{prefixLog + 1},
	})
	if err != nil {
		return err
	}
	defer it.Close()
	want := int64(0) // 0 before the first record
	for ok := it.Last(); ok && logBytes >= 0; ok = it.Prev() {
		revision, err := parseLogKey(it.Key())
		if err != nil {
			return err
		}
		if want != 0 && revision != want {
			break
		}
		want = revision - 1
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		logBytes -= 2 * int64(len(value))
	}
	if err := it.Error(); err != nil || logBytes < 0 || want <= max(compacted, 1) {
		return err
	}
	return fmt.Errorf("data directory %s: %w: revision %d is missing in the log; restore a snapshot "+
		"(keelson snapshot save takes what is left)", d.opts.Dir, ErrDataLost, want)
}

// flushMemTables writes the memtables to tables.
func (d *database) flushMemTables(ctx context.Context) error {
	flushed, err := guardPanic(d.AsyncFlush)
	if err != nil {
		return err
	}
	select {
	case <-flushed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tableBytes returns figures about the tables of a level and all lower levels: the bytes that their deletions
// delete, and the size of their contents before and after compression.
func (d *database) tableBytes(level int) (deleted, raw, compressed float64, err error) {
	levels, err := d.SSTables(pebble.WithProperties())
	if err != nil {
		return 0, 0, 0, err
	}
	for _, tables := range levels[level:] {
		for _, table := range tables {
			p := table.Properties
			deleted += float64(p.RawPointTombstoneKeySize + p.RawPointTombstoneValueSize)
			raw += float64(p.RawKeySize + p.RawValueSize)
			compressed += float64(table.Size)
		}
	}
	return deleted, raw, compressed, nil
}

// applyUnsynced applies a batch of background work without a sync. An error stops the store.
func (d *database) applyUnsynced(b *pebble.Batch) error {
	_, err := guardPanic(func() (struct{}, error) { return struct{}{}, d.Apply(b, pebble.NoSync) })
	if err != nil {
		return d.pipeline.fail(err)
	}
	return nil
}
