package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
	"github.com/cockroachdb/pebble/v2/sstable/valblk"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A table is a sequence of data blocks, followed by other blocks and a footer:
//
//	data block, data block, ..., index, value block, ..., value index, properties, ..., footer
//
// Each block ends with its checksum, and begins where the previous block ends. The index says where each data
// block begins. If the index is damaged, the end of a block is found by its checksum: the block ends where the
// next bytes are the checksum of the bytes read so far. The readable records of a damaged table are those of all
// data blocks with a right checksum. Values of older versions of a key are in value blocks. Without an index, the
// blocks after the first damaged block and all value blocks cannot be found. Deletions of ranges of keys are in a
// block of their own. If it cannot be read, the mender repeats these deletions.

// rescue contains the readable parts of a damaged table.
type rescue struct {
	options *pebble.Options
	content []byte         // of the damaged table
	blocks  []rescuedBlock // of data, in the order of their keys
	values  []rescuedBlock // value blocks by number; nil if the block cannot be read
	gaps    []gap
}

// rescuedBlock is a decompressed block.
type rescuedBlock []byte

// gap is a part of a table that cannot be read. Its records have keys above after and below before, the keys of
// the neighbouring records in the table. after is nil at the beginning of the table, and before is nil at its end.
type gap struct{ after, before []byte }

// rescueTable reads the readable parts of a table.
func rescueTable(o *pebble.Options, content []byte) rescue {
	found := rescue{options: o, content: content}
	starts, end := found.index(content)
	lost := false
	for at := 0; at < end; {
		size := blockSize(content[at:end], starts, at)
		if size == 0 {
			lost = true
			next, _ := slices.BinarySearch(starts, at+1)
			if next == len(starts) {
				break
			}
			at = starts[next]
			continue
		}
		data, err := decompress(content[at : at+size])
		if err != nil || !found.isData(data) {
			if len(starts) == 0 {
				break // the first block that has no data
			}
			lost = true
			at += size
			continue
		}
		if lost {
			found.gaps = append(found.gaps, gap{found.last(), found.first(data)})
		}
		found.blocks, lost = append(found.blocks, data), false
		at += size
	}
	if lost || len(found.blocks) == 0 {
		found.gaps = append(found.gaps, gap{after: found.last()})
	}
	return found
}

// last returns the key of the last record, nil if there is none.
func (r *rescue) last() (key []byte) {
	if n := len(r.blocks); n > 0 {
		_ = r.eachRecord(r.blocks[n-1], func(k pebble.InternalKey, _ []byte, _ bool) error { // isData has read it without an error
			key = append(key[:0], k.UserKey...)
			return nil
		})
	}
	return key
}

// errStop ends an iteration.
var errStop = errors.New("stop")

// first returns the key of the first record of a data block.
func (r *rescue) first(data rescuedBlock) (key []byte) {
	_ = r.eachRecord(data, func(k pebble.InternalKey, _ []byte, _ bool) error { // the error is errStop
		key = bytes.Clone(k.UserKey)
		return errStop
	})
	return key
}

// index reads the value blocks, and returns the beginnings of the data blocks and the end of the last one,
// according to the index. If the index cannot be read, starts is empty and end is the end of the table.
func (r *rescue) index(content []byte) (starts []int, end int) {
	layout, err := tableLayout(r.options, content)
	if err != nil {
		return nil, len(content)
	}
	for _, d := range layout.Data {
		starts = append(starts, int(d.Offset))
		end = int(d.Offset+d.Length) + blockTrailerSize
	}
	for _, v := range layout.ValueBlock {
		var values rescuedBlock
		if b := content[v.Offset : int(v.Offset+v.Length)+blockTrailerSize]; validBlock(b) {
			values, _ = decompress(b) // nil if it fails
		}
		r.values = append(r.values, values)
	}
	return starts, min(end, len(content))
}

// openContent opens the content of a table.
func openContent(o *pebble.Options, content []byte) (*sstable.Reader, error) {
	fs := vfs.NewMem()
	f, err := fs.Create("table", vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(bytes.Clone(content)) // Write may change its argument
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if f, err = fs.Open("table"); err != nil {
		return nil, err
	}
	readable, err := sstable.NewSimpleReadable(&checkedTable{File: f, name: "table", size: int64(len(content))})
	if err != nil {
		return nil, err
	}
	r, err := guardPanic(func() (*sstable.Reader, error) {
		return sstable.NewReader(context.Background(), readable, o.MakeReaderOptions())
	})
	if err != nil {
		return nil, errors.Join(err, readable.Close())
	}
	return r, nil
}

// tableLayout returns the positions of the blocks of a table. It fails if the footer, the properties or the index
// is damaged.
func tableLayout(o *pebble.Options, content []byte) (*sstable.Layout, error) {
	r, err := openContent(o, content)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return guardPanic(r.Layout)
}

// maxBlockSize limits the size of a block whose end is searched for. A block exceeds its target size by one record
// at most.
const maxBlockSize = 32 << 20

// blockSize returns the size of the block at the beginning of content, with its trailer. The block ends at the
// next known beginning or, if that is not known, where its checksum is right. It returns 0 if it finds no block
// with a right checksum.
func blockSize(content []byte, known []int, at int) int {
	most := min(len(content), maxBlockSize)
	if i, ok := slices.BinarySearch(known, at); ok {
		size := len(content)
		if i+1 < len(known) {
			size = known[i+1] - at
		}
		if size <= len(content) && validBlock(content[:size]) {
			return size
		}
		return 0
	}
	sum := uint32(0)
	for n := 1; n+4 <= most; n++ {
		sum = crc32.Update(sum, castagnoli, content[n-1:n])
		// The format stores checksums rotated, with a constant added (as LevelDB does).
		if n > blockTrailerSize && binary.LittleEndian.Uint32(content[n:]) == (sum>>15|sum<<17)+0xa282ead8 {
			return n + 4
		}
	}
	return 0
}

// decompress returns the decompressed data of a block. b includes the trailer.
func decompress(b []byte) (rescuedBlock, error) {
	return guardPanic(func() (rescuedBlock, error) {
		n := len(b) - blockTrailerSize
		indicator := block.CompressionIndicator(b[n])
		size, err := block.DecompressedLen(indicator, b[:n])
		if err != nil {
			return nil, err
		}
		const atLeast = 16 // aligns the memory to 8 bytes, which the decoder needs
		data := make([]byte, size, max(size, atLeast))
		return data, block.DecompressInto(indicator, b[:n], data)
	})
}

// isData reports whether data is a block of records in ascending order.
func (r *rescue) isData(data rescuedBlock) bool {
	var last []byte
	return r.eachRecord(data, func(k pebble.InternalKey, _ []byte, _ bool) error {
		if len(k.UserKey) == 0 || bytes.IndexByte([]byte{prefixExpiry, prefixLog, prefixMeta, prefixVersion}, k.UserKey[0]) < 0 ||
			r.options.Comparer.Compare(k.UserKey, last) < 0 {
			return errCorrupt
		}
		last = append(last[:0], k.UserKey...)
		return nil
	}) == nil
}

// eachRecord calls yield for each record of a data block. ok is false if the value cannot be read.
func (r *rescue) eachRecord(data rescuedBlock, yield func(key pebble.InternalKey, value []byte, ok bool) error) error {
	_, err := guardPanic(func() (struct{}, error) {
		var decoder colblk.DataBlockDecoder
		var it colblk.DataBlockIter
		schema := r.options.KeySchemas[r.options.KeySchema]
		decoder.Init(schema, data)
		handles := valblk.MakeReader(nil, nil, valblk.IndexHandle{}, nil) // only decodes handles, reads no values
		it.InitOnce(schema, r.options.Comparer, &handles)
		if err := it.Init(&decoder, block.IterTransforms{}); err != nil {
			return struct{}{}, err
		}
		for kv := it.First(); kv != nil; kv = it.Next() {
			value, ok := r.value(kv.LazyValue())
			if err := yield(kv.K, value, ok); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, it.Error()
	})
	return err
}

// value returns the value of a record, which may be in a value block.
func (r *rescue) value(v pebble.LazyValue) ([]byte, bool) {
	if v.Fetcher == nil {
		return v.ValueOrHandle, true
	}
	h := valblk.DecodeRemainingHandle(v.ValueOrHandle)
	if int(h.BlockNum) >= len(r.values) {
		return nil, false
	}
	b, end := r.values[h.BlockNum], uint64(h.OffsetInBlock)+uint64(v.Fetcher.Attribute.ValueLen)
	if end > uint64(len(b)) {
		return nil, false
	}
	return b[h.OffsetInBlock:end], true
}

// write writes a table with the readable records. The table has exactly size bytes, the size that the database
// knows. It has no filters and is well compressed, so it is smaller than the damaged table. Bytes that nothing
// refers to fill the difference.
func (r *rescue) write(fs vfs.FS, path string, size int64) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	// Any level but the last is possible. In a table of the last level, the database skips deletions, because no
	// level is below it.
	o := r.options.MakeWriterOptions(len(r.options.Levels)-2, r.options.FormatMajorVersion.MaxTableFormat())
	o.FilterPolicy, o.Compression = pebble.NoFilterPolicy, sstable.GoodCompression
	w := sstable.NewRawWriter(objstorageprovider.NewFileWritable(f), o)
	for _, b := range r.blocks {
		err = r.eachRecord(b, func(k pebble.InternalKey, value []byte, ok bool) error {
			if !ok {
				return nil
			}
			return w.Add(k, value, false)
		})
		if err != nil {
			break
		}
	}
	if err == nil {
		err = r.copyRangeDeletions(w)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return fillTable(r.options, fs, path, size)
}

// copyRangeDeletions writes the deletions of ranges of keys, if they can be read.
func (r *rescue) copyRangeDeletions(w sstable.RawWriter) error {
	table, err := openContent(r.options, r.content)
	if err != nil {
		return nil // the parts with its position cannot be read
	}
	defer table.Close()
	_, err = guardPanic(func() (struct{}, error) {
		it, err := table.NewRawRangeDelIter(context.Background(), sstable.NoFragmentTransforms, sstable.NoReadEnv)
		if err != nil || it == nil {
			return struct{}{}, nil // no such block, or it cannot be read
		}
		defer it.Close()
		span, err := it.First()
		for ; span != nil && err == nil; span, err = it.Next() {
			if err = w.EncodeSpan(*span); err != nil {
				break
			}
		}
		return struct{}{}, err
	})
	return err
}

// fillTable makes a table larger: it moves the footer to the new end and fills the space before it.
func fillTable(o *pebble.Options, fs vfs.FS, path string, size int64) error {
	content, err := readFile(fs, path)
	if err != nil {
		return err
	}
	fill := size - int64(len(content))
	if fill < 0 {
		return fmt.Errorf("what can be read of %s takes more space than the damaged table", path)
	}
	layout, err := tableLayout(o, content)
	if err != nil {
		return err
	}
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	end := int(layout.Footer.Offset)
	for _, part := range [][]byte{content[:end], make([]byte, fill), content[end:]} {
		if _, err = f.Write(part); err != nil {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// readFile returns the content of a file.
func readFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	return content, errors.Join(err, f.Close())
}
