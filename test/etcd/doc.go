// Package etcd runs etcd members in the process of the test and tests what uses them: the store (with the conformance
// suite of storage.Store, and while members stop) and servers on the store. It is a module of its own, so that the
// product does not depend on etcd's server:
//
//	cd test/etcd && go test ./...
//
// With KEELSON_LONG=1 the loops are as long as a release needs.
package etcd
