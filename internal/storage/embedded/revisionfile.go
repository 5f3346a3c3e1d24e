package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrDataLost is the error of Open when changes are missing that the store had made durable and acknowledged.
var ErrDataLost = errors.New("what was acknowledged is lost")

// revisionFileName is a file that contains a revision which was durable when the file was written. The file is written
// about once a second and is never synced. So after a power cut it may have an older revision or be missing, but its
// revision is never higher than the last durable one. If it is higher than the revision of the database, then the end
// of the database's log was cut off, or its newest files were removed. The database cannot detect that by itself,
// because such a log looks like one that never was longer.
const (
	revisionFileName = "revision"
	revisionFileTemp = revisionFileName + ".new"
	revisionFileSize = 8 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writeRevisionFile writes the current revision to the revision file. Errors are ignored: Open accepts a missing or
// older file.
func (s *Store) writeRevisionFile() {
	revision := s.hub.durable.Load()
	if s.opts.InMemory || revision == s.files.savedRevision {
		return
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, revisionFileSize), uint64(revision))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	fs, name := s.opts.FS, s.opts.FS.PathJoin(s.opts.Dir, revisionFileTemp)
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if errors.Join(err, f.Close()) != nil {
		return
	}
	if fs.Rename(name, fs.PathJoin(s.opts.Dir, revisionFileName)) == nil {
		s.files.savedRevision = revision
	}
}

// checkRevisionFile returns an ErrDataLost if the revision file has a higher revision than revision.
func (s *Store) checkRevisionFile(revision int64) error {
	was := s.readRevisionFile()
	if was <= revision {
		return nil
	}
	return fmt.Errorf("data directory %s: %w: it is at revision %d, and its file %s says that it was at %d; "+
		"restore a snapshot (keelson snapshot save takes what is left)",
		s.opts.Dir, ErrDataLost, revision, revisionFileName, was)
}

// checkLogRecords returns an ErrDataLost if revisions are missing in the log above the compaction revision. That happens
// if the end of the database's manifest is cut off: tables that it had named are then lost, and the log files, which are
// newer, are read nevertheless. The gap ends where these files begin, so only the records that they can contain are
// examined. logBytes is their size before the database was opened. A file has each key of a log record twice: there, and
// in the version.
func (s *Store) checkLogRecords(logBytes int64) error {
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: logKey(s.history.compacted.Load() + 1), UpperBound: []byte{prefixLog + 1},
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
	if err := it.Error(); err != nil || logBytes < 0 || want <= max(s.history.compacted.Load(), 1) {
		return err
	}
	return fmt.Errorf("data directory %s: %w: revision %d is missing in the log; restore a snapshot "+
		"(keelson snapshot save takes what is left)", s.opts.Dir, ErrDataLost, want)
}

// checkManifest returns an ErrDataLost if the directory has tables or a revision file, but not the marker file by which
// the database recognizes its directory. Without that file the database would create a new state and delete the tables.
func checkManifest(o *Options) error {
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return fmt.Errorf("cannot read data directory %s: %w", o.Dir, err)
	}
	used := ""
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "marker.manifest."):
			return nil
		// these do not exist after a first start that was interrupted
		case strings.HasSuffix(name, ".sst"), name == revisionFileName:
			used = name
		}
	}
	if used == "" {
		return nil
	}
	return fmt.Errorf(
		"data directory %s: %w: it has %s, and no file marker.manifest.*; restore a snapshot", o.Dir, ErrDataLost, used,
	)
}

// readRevisionFile returns the revision in the revision file, 0 if the file is missing or cannot be read.
func (s *Store) readRevisionFile() int64 {
	f, err := s.opts.FS.Open(s.opts.FS.PathJoin(s.opts.Dir, revisionFileName))
	if err != nil {
		return 0
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, revisionFileSize+1))
	if err != nil || len(b) != revisionFileSize || binary.BigEndian.Uint32(b[8:]) != crc32.Checksum(b[:8], castagnoli) {
		return 0
	}
	revision, err := decodeNumber(b[:8])
	if err != nil {
		return 0
	}
	return revision
}
