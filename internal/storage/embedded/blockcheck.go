package embedded

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// blockChecker is the file system of the database. When a block of a table is read, it verifies the checksum
// before Pebble does, so that a damaged block fails at once. Pebble would search for a single wrong bit: for each
// bit of up to 40 KiB of the block, it computes whether the checksum is right with that bit flipped. This takes 5
// s for a block of 200 KB, each time the block is read.
//
// The additional check takes 3 us for a block of 64 KiB, and less if the block is compressed. Blocks in the cache
// of Pebble are not read from the file, and so not checked again.
type blockChecker struct{ vfs.FS }

// checkBlocks returns the file system of a database. A database in memory gets no additional checks.
func checkBlocks(o *Options) vfs.FS {
	if o.unlogged {
		return o.FS
	}
	return blockChecker{o.FS}
}

// Open implements vfs.FS.
func (c blockChecker) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := c.FS.Open(name, o...)
	if err != nil || !strings.HasSuffix(name, tableSuffix) {
		return f, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &checkedTable{File: f, name: c.PathBase(name), size: info.Size()}, nil
}

// Unwrap implements vfs.FS.
func (c blockChecker) Unwrap() vfs.FS { return c.FS }

// tableSuffix is the suffix of the names of table files.
const tableSuffix = ".sst"

// checkedTable is a table file. Pebble reads each block of it with one call of ReadAt.
type checkedTable struct {
	vfs.File
	name string
	size int64
}

// ReadAt implements vfs.File. It fails with a *damagedBlockError if what it has read is a block with a wrong checksum.
func (t *checkedTable) ReadAt(b []byte, offset int64) (int, error) {
	n, err := t.File.ReadAt(b, offset)
	// The last bytes of the file are not a block but the footer, whose checksum is not at its end.
	if err == nil && offset+int64(len(b)) < t.size && !validBlock(b) {
		return n, &damagedBlockError{file: t.name, offset: offset, size: len(b)}
	}
	return n, err
}

// blockTrailerSize is the size of the trailer after the data of a block: one byte that names the compression, and
// the checksum of the data and that byte.
const blockTrailerSize = 5

// validBlock reports whether a block with its trailer has the right checksum.
func validBlock(b []byte) bool {
	n := len(b) - blockTrailerSize
	if n < 0 {
		return false
	}
	sum := block.Checksummer{Type: block.ChecksumTypeCRC32c}
	return sum.Checksum(b[:n], b[n]) == binary.LittleEndian.Uint32(b[n+1:])
}

// damagedBlockError is the error of reading a block whose data does not match its checksum.
type damagedBlockError struct {
	file   string // the name of the table
	offset int64
	size   int // with the trailer
}

func (e *damagedBlockError) Error() string {
	return fmt.Sprintf("the %d bytes at %d of %s do not match their checksum", e.size, e.offset, e.file)
}

// Unwrap makes Pebble treat it as a corruption: Pebble reports it to corruptionHandler and does not read the block
// again.
func (*damagedBlockError) Unwrap() error { return pebble.ErrCorruption }
