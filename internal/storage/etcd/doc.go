// Package etcd stores objects in an etcd cluster, which other Keelson processes and kube-apiservers may use at the same
// time. The keys are those of kube-apiserver, and the revisions are those of etcd.
//
// # Reading
//
// Revision is a linearizable read of one key that does not exist. Callers that arrive while a read is in progress share
// the next one. So there is at most one such request at a time, however many callers want the current revision.
//
// # Watching
//
// A Watcher is one gRPC stream with one watch, so that the progress notifications of the stream are about that watch
// alone. There are only a few watchers: the cache watches all resources with one Watcher for each part of the key space
// (see Part), and watches that are behind the log of the cache share a few more (cache.CatchUp). The reason is that
// etcd uses a hundred megabytes or more for a stream of old changes whose reader is slow.
//
// A watch is started one revision before the first wanted one, and the additional changes are dropped. Then etcd
// refuses the watch if compaction has reached the first wanted revision; otherwise it would refuse it only if
// compaction has passed that revision. After a stream has broken, the next one continues where it ended, on any member.
//
// etcd reads the value before a change when it sends the change. If that version has been compacted by then, etcd sends
// the change without it and without an error. The watcher treats this as a sign that compaction has overtaken the
// watch.
//
// # Progress
//
// A watcher without matching changes does not know the current revision. It requests progress from etcd, and repeats
// the request until the answer arrives. etcd answers on the same stream, after it has sent all changes up to the
// revision in the answer; if it has not sent them yet, it drops the request. Releases before 3.4.25 and from 3.5.0 to
// 3.5.7 answer too early. The store refuses to work with them, because the cache would serve old data as current.
//
// # Compaction
//
// At each interval each API server of the cluster tries to update compact_rev_key, on condition that its version is the
// one that it saw last. The one that succeeds compacts to the revision that was current one interval ago. The key and
// the rule are those of kube-apiserver, so that Keelson and kube-apiserver share this work.
//
// # Order of the files
//
// store.go (Store, Open, Get, Range, Revision, Compact), options.go (options, mapping of keys), commit.go, lease.go
// (times to live), watch.go, part.go, sharedread.go, retry.go, members.go (health of the members), compact.go,
// errors.go, logger.go.
package etcd
