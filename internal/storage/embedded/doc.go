// Package embedded is the storage engine that runs inside the server process: a key-value store with revisions on the
// database Pebble, in one data directory or in memory.
//
// # Terms
//
// In this package compaction means the compaction of history, as in etcd: old versions of keys are deleted. Pebble uses
// the same word for the rewriting of its tables; here that is called a merge. The store time and the uptime are two
// clocks that the wall clock cannot change; see storeClock.
//
// # Life of a change
//
// Commit queues a request. The builder goroutine takes the queued requests, checks the conditions of each transaction
// against the newest state (durable or not yet), assigns revisions in order and hands ONE Pebble batch to the log. The
// syncer goroutine waits until that batch is durable and then publishes it: it appends the events to the ring, advances
// the durable revision, wakes the watchers whose prefix matches and answers the callers. While one group is being
// synced the next one is built. So one fsync makes many transactions durable (group commit), and the builder does not
// wait for the disk (pipelining).
//
// Example: A and B commit while the group of an earlier transaction is being synced. The builder plans A as revision 7
// and B as revision 8, and applies one batch with both. When that batch is durable, the syncer publishes revisions 7
// and 8 and answers A and B.
//
// # Invariants
//
//   - Durable first. Every read is limited by the durable revision, which only the syncer advances, after the sync
//     that covers it. Pebble itself makes a batch visible earlier. That does no harm, because every version has its
//     revision.
//   - Answers are final. A conflict with a change that is not durable yet is answered when that change is durable,
//     and with ErrFailed if it never becomes durable.
//   - Revisions have no gaps while the process runs. They jump only at Open (Options.MinRevision), and a jump
//     compacts all older revisions.
//   - A failed sync fails its commit and every later one. Reads continue at the last durable revision.
//   - Compaction first advances the compaction revision and then deletes. A reader first opens its Pebble iterator
//     and then checks the compaction revision. So the iterator contains every version that the reader may ask for.
//   - The history window and times to live are measured by the store's own clock (clock.go): by the time that passes,
//     not by what the wall clock is set to.
//   - Merges never use the last half of the reserve of free space (mergescheduler.go), and the space of compacted
//     history is freed without further writes (reclaim.go). If merges have no space, puts are refused; they do not
//     block.
//
// # Layout
//
// See layout.go. A value is written once. A read of the newest version of a key is a prefix seek with a Bloom filter
// over whole keys (10 bits per key, at every level), so that no index of keys is needed in memory: the filters of a
// million keys take about 1.3 MB, mostly on disk, where a map of the keys would take 100 MB of memory. The creation of
// a new key reads no data block.
//
// # Order of the files
//
//   - Data: layout.go and comparer.go (records and their order), options.go, engine.go (Store, Open, Commit, Close),
//     lifetime.go, database.go (records that are no versions, writes of background work).
//   - Writes: pipeline.go (group commit), plan.go (conditions, revisions and the batch of a group), recent.go (versions
//     that the planner does not read again).
//   - Reads: read.go (Get and Range), blockrevisions.go (blocks that old reads skip), watch.go (watchers), ring.go
//     (recent changes in memory), logreader.go (older changes, from the log).
//   - The past: retention.go (what is kept, for how long), shares.go (what is removed first), past.go (reads of
//     it).
//   - Time: clock.go, expiry.go (the sweeper: times to live), samples.go (which revision was current when), compact.go
//     (the compactor: what is deleted when), hold.go (what a copy does not have yet).
//   - Disk space: diskspace.go (reserve), mergescheduler.go, garbage.go and reclaim.go.
//   - Damage: blockcheck.go, corruption.go, revisionfile.go, verify.go; repair.go, with repairtables.go, tablerescue.go,
//     mend.go and mendpast.go.
//   - Copies: export.go (also Reader and Import), image.go, replay.go (changes after an export).
package embedded
