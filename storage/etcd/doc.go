// Package etcd keeps objects in an etcd cluster, beside other Keelson processes
// and kube-apiservers that use it: the keys are theirs, revisions are etcd's own.
//
// # Reading
//
// Revision is a linearizable read of one missing key. Callers that come while one
// is under way share the next: however many readers want the current revision,
// there is one request at a time.
//
// # Watching
//
// A Watcher is one gRPC stream with one watch on it, so that what the stream says
// about progress concerns that watch alone. Its users are few: the cache follows
// all resources with one Watcher for each part of the key space (see Part), and
// watches that are behind the cache's log share a few more (cache.Histories): a stream
// of old changes makes etcd hold a hundred megabytes or more while its reader is slow.
//
// A watch is started one revision before the first that is wanted, and what is too
// much is dropped: etcd then refuses it exactly when compaction has reached the
// first wanted revision, and not only when it has passed it. After a stream broke,
// the next one starts where the last one ended, on any member.
//
// etcd reads the value before a change when it sends the change. If that has been
// compacted by then, it sends the change without it and without an error; such a
// change is taken for what it is, a sign that compaction overtook the watch.
//
// # Progress
//
// A watcher for which nothing happened does not know the current revision. It asks
// etcd for it, and asks again until the answer comes: etcd answers only when it has
// sent all changes up to the revision that it names, after them, on the same
// stream, and it drops the request when it has not. Releases before 3.4.25 and from
// 3.5.0 to 3.5.7 answer too early; the store refuses to work with them, because a
// cache would take old data for current.
//
// # Compaction
//
// Every interval each API server on the cluster tries to move compact_rev_key on
// from the version it saw last; who succeeds compacts to the revision that was
// current one interval ago. The key and the rule are kube-apiserver's, so that they
// share the work with us.
package etcd
