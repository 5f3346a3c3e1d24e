// Package snapshot is the file format of a store's state at one revision. It is
// pure: it reads and writes streams, and knows no store.
//
// # Format
//
// A file is a line that says what it is, then blocks, then a SHA-256.
//
//	KEELSON-SNAPSHOT 1\n
//	block 'h'     the header, JSON
//	block 'e' ... entries, in ascending byte order of their keys
//	block 't'     the totals, JSON
//	32 bytes      SHA-256 of all bytes before
//
// A block is its kind (one byte), the length of its payload (four bytes, big
// endian), the payload, and the CRC-32C of all these (four bytes, big endian). An
// entry is
//
//	uvarint key length, key,
//	uvarint revision at which the key was made,
//	uvarint revision of its last change,
//	uvarint deadline in Unix milliseconds (0: the key does not expire),
//	uvarint value length, value
//
// and no block ends within an entry.
package snapshot
