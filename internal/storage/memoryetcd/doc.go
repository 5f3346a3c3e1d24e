// Package memoryetcd serves the API of etcd (version 3) from memory. It is for test environments that start a
// program named etcd together with kube-apiserver. It keeps its data in memory until it stops, writes nothing to
// disk, and is a cluster of one member.
//
// It serves the methods that API servers and etcdctl use: keys with their versions, transactions, watches with
// progress notifications, leases, compaction, status and the list of members. Users and roles, snapshots, hashes,
// alarms that are raised, and changes of the membership do not exist; gRPC answers Unimplemented.
//
// # Order of the files
//
// index.go (ordered keys), state.go (keys, versions and log), transaction.go (requests that read and write),
// lease.go: pure code without locks, clock and I/O. server.go (listeners, lifetime), kv.go, leases.go, watch.go,
// cluster.go: the services around it. health.go has the answers over plain HTTP.
package memoryetcd
