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

// revisionFile is the revision file of a store. Its methods are called by one goroutine at a time: by Open, then
// by the maintenance goroutine, and by Close after that goroutine has ended.
type revisionFile struct {
	opts  *Options
	saved int64 // the revision that this process wrote last
}

// write writes a durable revision. Errors are ignored: Open accepts a missing or older file.
func (r *revisionFile) write(revision int64) {
	if r.opts.InMemory || revision == r.saved {
		return
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, revisionFileSize), uint64(revision))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	fs, name := r.opts.FS, r.opts.FS.PathJoin(r.opts.Dir, revisionFileTemp)
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if errors.Join(err, f.Close()) != nil {
		return
	}
	if fs.Rename(name, fs.PathJoin(r.opts.Dir, revisionFileName)) == nil {
		r.saved = revision
	}
}

// check returns an ErrDataLost if the file has a higher revision than revision.
func (r *revisionFile) check(revision int64) error {
	was := r.read()
	if was <= revision {
		return nil
	}
	return fmt.Errorf("data directory %s: %w: it is at revision %d, and its file %s says that it was at %d; "+
		"restore a snapshot (keelson snapshot save takes what is left)",
		r.opts.Dir, ErrDataLost, revision, revisionFileName, was)
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
		// both are missing if the first start was interrupted
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

// read returns the revision in the file, 0 if the file is missing or cannot be read.
func (r *revisionFile) read() int64 {
	f, err := r.opts.FS.Open(r.opts.FS.PathJoin(r.opts.Dir, revisionFileName))
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
