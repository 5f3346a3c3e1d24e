package embedded

import (
	"math"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// Each block and each table of versions has the range of its revisions as a property. A read at an old revision
// skips blocks and tables in which all revisions are newer. For a read at a revision of an hour ago, these are
// most blocks of the upper levels. The result is the same as without skipping, because the read ignores newer
// versions anyway. It is also safe for deletions: Pebble's record that deletes a version has the same key as the
// version, so a skipped block deletes no version that the read needs.

// blockRevisions is the name of the property in the tables. Tables of older programs do not have it and are not
// skipped.
const blockRevisions = "keelson.revisions.1"

// collectRevisions makes the collector of a table.
func collectRevisions() pebble.BlockPropertyCollector {
	return sstable.NewBlockIntervalCollector(blockRevisions, revisionOf{}, nil)
}

// upTo returns the filter for a read at a revision. It skips blocks and tables whose revisions are all newer.
func upTo(revision int64) []pebble.BlockPropertyFilter {
	return []pebble.BlockPropertyFilter{sstable.NewBlockIntervalFilter(blockRevisions, 0, uint64(revision)+1, nil)}
}

// revisionOf implements sstable.IntervalMapper.
type revisionOf struct{}

// MapPointKey implements sstable.IntervalMapper. Only versions count: other records are read without the filter.
func (revisionOf) MapPointKey(key pebble.InternalKey, _ []byte) (sstable.BlockInterval, error) {
	if len(key.UserKey) == 0 || key.UserKey[0] != prefixVersion {
		return sstable.BlockInterval{}, nil
	}
	_, revision, err := splitVersionKey(key.UserKey)
	if err != nil { // no read skips a key that cannot be parsed
		return sstable.BlockInterval{Upper: math.MaxUint64}, nil
	}
	return sstable.BlockInterval{Lower: uint64(revision), Upper: uint64(revision) + 1}, nil
}

// MapRangeKeys implements sstable.IntervalMapper. There are no range keys.
func (revisionOf) MapRangeKeys(sstable.Span) (sstable.BlockInterval, error) {
	return sstable.BlockInterval{}, nil
}
