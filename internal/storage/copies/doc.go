// Package copies keeps a copy of a store elsewhere: images, and every change after them, in a bucket. Out of a copy a store can be made
// as it was at any moment that the copy covers.
//
// # Layout
//
// The objects of a bucket, by their names:
//
//	EPOCH/image-REVISION-TIME.snapshot      an image: the store at a revision (package snapshot, with the past)
//	EPOCH/AFTER-THROUGH-TIME.changes        a segment: all changes after a revision, up to another one (package changelog)
//
// with .age behind the name if the object is encrypted. Numbers have leading zeros, so that the order of the names is the order of the
// numbers; times are in Unix milliseconds.
//
// An epoch is one line of history: each of its segments follows the one before. A store that does not go on where the newest epoch ends
// (because another store was restored, or the changes in between are gone) begins a new epoch with an image.
//
// # What a reader does
//
// It begins with an image, whose revision is p, and applies the segments: always the one with After <= p < Through that reaches
// furthest, and of it the transactions above p. So segments may overlap, as they do after a process was killed between writing a merged
// segment and deleting its parts. If there is no such segment, the copy ends at p. A hole is never skipped.
//
// # Order of the files
//
// index.go (what a bucket has, and which objects give a state), ship.go
// (Shipper), maintain.go (merged segments, images and retention), restore.go.
package copies
