package embedded

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

// maxScannedLogRecords is the largest number of log records that are read for one batch.
const maxScannedLogRecords = 10_000

// logReader reads log records and versions through one iterator, so that both belong to the same state.
type logReader struct {
	it     *pebble.Iterator
	prefix []byte
	buf    [128]byte
}

// loggedChange is a log operation with its revision.
type loggedChange struct {
	logOp
	revision int64
}

// changes returns the changes of keys with the prefix of r, from revision from to revision through, and the last
// revision that was examined. It stops when there are enough changes for a batch.
func (r *logReader) changes(from, through int64) (out []loggedChange, last int64, err error) {
	end := logKey(through)
	scanned := 0
	for ok := r.it.SeekGE(logKey(from)); ok && bytes.Compare(r.it.Key(), end) <= 0; ok = r.it.Next() {
		if scanned++; scanned > maxScannedLogRecords || len(out) >= batchEvents {
			return out, last, nil
		}
		revision, err := parseLogKey(r.it.Key())
		if err != nil {
			return nil, 0, err
		}
		value, err := r.it.ValueAndErr()
		if err != nil {
			return nil, 0, err
		}
		err = decodeLog(value, func(key []byte, op logOp) error {
			if bytes.HasPrefix(key, r.prefix) {
				op.key = string(key)
				out = append(out, loggedChange{op, revision})
			}
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
		last = revision
	}
	return out, through, r.it.Error()
}

// event returns the event of a logged change, with the values before and after it.
func (r *logReader) event(c loggedChange) (storage.Event, error) {
	e := storage.Event{Entry: storage.Entry{Key: c.key, ModRevision: c.revision}, Deleted: c.deleted}
	var err error
	if !c.deleted {
		if e.Entry, err = r.entry(c.key, c.revision); err != nil {
			return e, err
		}
	}
	if c.prev != 0 {
		e.Prev, err = r.entry(c.key, c.prev)
	}
	return e, err
}

// entry returns the version of key that was written at exactly revision.
func (r *logReader) entry(key string, revision int64) (storage.Entry, error) {
	v, err := r.version(key, revision)
	if err != nil {
		return storage.Entry{}, err
	}
	return v.entry(key), nil
}

// version is entry with the deadline. The value is valid until the next call.
func (r *logReader) version(key string, revision int64) (version, error) {
	v, ok, err := seekVersion(r.it, r.buf[:0], key, revision)
	if err != nil {
		return version{}, err
	}
	if !ok || v.revision != revision || v.tombstone {
		return version{}, fmt.Errorf("%w: the log names %q at revision %d, which is not there", errCorrupt, key, revision)
	}
	return v, nil
}
