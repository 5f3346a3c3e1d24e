package memoryetcd

import (
	"slices"
	"strings"
)

// maxBlock is the number of keys at which a block is split in two.
const maxBlock = 512

// index has the versions of keys in the order of the keys. It is a list of blocks in ascending order, each of which is
// sorted and has at least one element. The zero value is empty.
type index struct {
	blocks [][]*versions
	count  int
}

// find returns the position of the first key that is not less than key: the block and the position in it. If there
// is no such key, block is len(blocks).
func (ind *index) find(key string) (block, i int) {
	block, _ = slices.BinarySearchFunc(ind.blocks, key, func(b []*versions, key string) int {
		return strings.Compare(b[len(b)-1].key, key)
	})
	if block < len(ind.blocks) {
		i, _ = slices.BinarySearchFunc(ind.blocks[block], key, compareKey)
	}
	return block, i
}

func compareKey(h *versions, key string) int { return strings.Compare(h.key, key) }

// get returns the versions of a key, or nil.
func (ind *index) get(key string) *versions {
	block, i := ind.find(key)
	if block < len(ind.blocks) && ind.blocks[block][i].key == key {
		return ind.blocks[block][i]
	}
	return nil
}

// getOrAdd returns the versions of a key, which it adds if they are missing.
func (ind *index) getOrAdd(key string) *versions {
	block, i := ind.find(key)
	if block < len(ind.blocks) && ind.blocks[block][i].key == key {
		return ind.blocks[block][i]
	}
	h := &versions{key: key}
	ind.count++
	if len(ind.blocks) == 0 {
		ind.blocks = [][]*versions{{h}}
		return h
	}
	if block == len(ind.blocks) { // behind all keys
		block--
		i = len(ind.blocks[block])
	}
	b := slices.Insert(ind.blocks[block], i, h)
	ind.blocks[block] = b
	if len(b) >= maxBlock {
		half := len(b) / 2
		ind.blocks[block] = slices.Clone(b[:half])
		ind.blocks = slices.Insert(ind.blocks, block+1, slices.Clone(b[half:]))
	}
	return h
}

// ascend calls yield with the versions of the keys in a span, in order, until yield returns false.
func (ind *index) ascend(in span, yield func(*versions) bool) {
	for block, i := ind.find(in.start); block < len(ind.blocks); block, i = block+1, 0 {
		for _, h := range ind.blocks[block][i:] {
			if in.isBefore(h.key) || !yield(h) {
				return
			}
		}
	}
}

// retain removes the keys for which keep returns false.
func (ind *index) retain(keep func(*versions) bool) {
	ind.count = 0
	for i, b := range ind.blocks {
		ind.blocks[i] = slices.DeleteFunc(b, func(h *versions) bool { return !keep(h) })
		ind.count += len(ind.blocks[i])
	}
	ind.blocks = slices.DeleteFunc(ind.blocks, func(b []*versions) bool { return len(b) == 0 })
}

// span is a range of keys in the form of etcd's requests.
type span struct {
	start string
	// end is the first key after the span. If it is empty, the span has one key. If it is "\x00", the span has no
	// end.
	end string
}

const noEnd = "\x00"

func newSpan(key, end []byte) span { return span{string(key), string(end)} }

// isBefore reports whether the span ends before key. key must not be less than the start of the span.
func (s span) isBefore(key string) bool {
	switch s.end {
	case "":
		return key != s.start
	case noEnd:
		return false
	}
	return key >= s.end
}

// contains reports whether a key is in the span.
func (s span) contains(key string) bool { return key >= s.start && !s.isBefore(key) }

// isEmpty reports whether no key can be in the span.
func (s span) isEmpty() bool { return s.end != "" && s.end != noEnd && s.end <= s.start }
