// Package etcd runs etcd members in the test's own process and tests what is
// built on them: the conformance suite of storage.Store, what happens while members
// stop, and a server on the store. It is a module of its own so that etcd's server
// is no dependency of the product:
//
//	cd test/etcd && go test ./...
//
// With KEELSON_LONG=1 the loops are as long as a release needs.
package etcd
