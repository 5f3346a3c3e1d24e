// Package embedded is the storage engine that lives inside the process: a
// revisioned key-value store on Pebble, in one data directory or in memory.
//
// # Life of a change
//
// Commit queues a request. One builder goroutine takes whatever waits, checks
// each transaction's conditions against the newest state (durable or not yet),
// assigns revisions in order and hands ONE Pebble batch to the log. One syncer
// goroutine waits until that batch is durable and then publishes it: it appends
// the events to the ring, moves the durable revision, wakes the watchers that
// match and answers the callers. While one group is being synced the next one
// is built, so one fsync carries many transactions (group commit) and the
// builder is not idle meanwhile (pipelining).
//
// # Invariants
//
//   - Durable first. Every read is bounded by the durable revision, which only
//     the syncer moves, after the sync that covers it. Pebble itself shows a
//     batch earlier; that is harmless because every version carries its revision.
//   - Answers are facts. A conflict that rests on a change not yet durable is
//     answered when that change is, and with ErrFailed if it never is.
//   - Revisions are contiguous while the process lives. They jump only at Open
//     (Options.MinRevision), and a jump compacts what lies below it.
//   - A failed sync fails that commit and every later one. Reads go on at the
//     last durable revision.
//   - Compaction first moves the compaction revision, then deletes. A reader opens
//     its Pebble iterator first and checks the compaction revision after: what it
//     then sees is whole.
//   - History and keys with a time to live go by the store's own clock (clock.go): by the
//     time that passes, not by what the wall clock is set to.
//   - The merges of tables by the database never take the last half of the reserve of free
//     space (gate.go), and what compaction sets free comes back without further writes
//     (reclaim.go). When merges find no space, puts are refused rather than held up.
//
// # Layout
//
// See layout.go. A value is written once. Point reads of the newest version are
// a prefix seek guarded by Bloom filters over whole keys (10 bits a key, read at
// every level), so that there is no index of keys in memory: a million keys cost
// about 1.3 MB of filters, most of it on disk, instead of 100 MB of map; a create
// of a new key reads no data block.
package embedded
