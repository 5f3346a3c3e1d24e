package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrLost says that a store is not what it was: something that it had made durable,
// and acknowledged, is no longer there.
var ErrLost = errors.New("what was acknowledged is lost")

// markName is a file that has a revision which was durable when it was written. It is
// written now and then and never synced: after a power cut it may be older, or gone,
// but never ahead. If it is ahead of the database, the end of the database's log was
// cut off, or its newest files were taken away, which the database itself cannot tell
// from a log that never was longer.
const (
	markName    = "revision"
	markNewName = markName + ".new"
	markLength  = 8 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writeMark notes the current revision. It is of no consequence if that fails: a mark
// that is missing says nothing.
func (s *Store) writeMark() {
	revision := s.hub.durable.Load()
	if s.opts.InMemory || revision == s.marked {
		return
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, markLength), uint64(revision))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	fs, name := s.fs, s.fs.PathJoin(s.opts.Dir, markNewName)
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if errors.Join(err, f.Close()) != nil {
		return
	}
	if fs.Rename(name, fs.PathJoin(s.opts.Dir, markName)) == nil {
		s.marked = revision
	}
}

// checkMark returns an ErrLost if the store was at a higher revision before.
func (s *Store) checkMark(revision int64) error {
	was := s.readMark()
	if was <= revision {
		return nil
	}
	return fmt.Errorf("data directory %s: %w: it is at revision %d, and its file %s says that it was at %d; restore a snapshot (keelson snapshot save takes what is left)",
		s.opts.Dir, ErrLost, revision, markName, was)
}

// whole says whether the file is missing by which the database knows that it is there.
// Without it the database would begin anew and remove the tables as nobody's.
func whole(o *Options) error {
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return fmt.Errorf("cannot read data directory %s: %w", o.Dir, err)
	}
	used := ""
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "marker.manifest."):
			return nil
		case strings.HasSuffix(name, ".sst"), name == markName: // not from a first start that was interrupted
			used = name
		}
	}
	if used == "" {
		return nil
	}
	return fmt.Errorf(
		"data directory %s: %w: it has %s, and no file marker.manifest.*; restore a snapshot", o.Dir, ErrLost, used,
	)
}

// readMark returns the revision of the mark, 0 if there is none that can be read.
func (s *Store) readMark() int64 {
	f, err := s.fs.Open(s.fs.PathJoin(s.opts.Dir, markName))
	if err != nil {
		return 0
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, markLength+1))
	if err != nil || len(b) != markLength || binary.BigEndian.Uint32(b[8:]) != crc32.Checksum(b[:8], castagnoli) {
		return 0
	}
	revision, err := decodeNumber(b[:8])
	if err != nil {
		return 0
	}
	return revision
}
