// Package snapshot is the file format of the state of a store at one revision. It reads and writes streams and does not
// depend on a store.
//
// # Format
//
// A file is a line with the name and version of the format, then blocks, then a SHA-256.
//
//	KEELSON-SNAPSHOT 1\n
//	block 'h'     the header, JSON
//	block 'e' ... entries, in ascending byte order of their keys
//	block 'p' ... in version 2: records of the past
//	block 't'     the totals, JSON
//	32 bytes      SHA-256 of all bytes before
//
// A block is its kind (one byte), the length of its payload (four bytes, big endian), the payload, and the CRC-32C of
// all these (four bytes, big endian). An entry is
//
//	uvarint key length, key,
//	uvarint revision at which the key was created,
//	uvarint revision of its last change,
//	uvarint deadline in Unix milliseconds (0: the key does not expire),
//	uvarint value length, value
//
// A record of the past describes earlier changes and deletions, with their times and authors. It is a key and a
// value, each after its length as a uvarint. They have the encoding of the storage engine with the version in the
// header (Header.PastFormat). Version 2 is only written for a snapshot with such records.
//
// An entry or a record is never split between blocks.
//
// # Order of the files
//
// snapshot.go (types and errors), write.go (Writer), read.go (Reader).
package snapshot
