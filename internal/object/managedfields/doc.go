// Package managedfields keeps metadata.managedFields, which say which manager owns which fields of an object, and
// merges the configurations that managers apply into objects (server-side apply, KEP-555). fieldsV1 are written
// to the byte as kube-apiserver writes them.
//
// # What has to be computed
//
// A field set is a set of paths such as f:spec f:replicas. managedFields are one entry for each manager, version,
// subresource and operation, with the field set that it owns.
//
// After a create, an update or a patch (Manager.Update), the manager of the request owns the fields that differ
// between the object before and after it, and every other manager loses them.
//
// After an apply (Manager.Apply), the manager owns the fields that its configuration mentions. Suppose that two
// managers look after a Deployment:
//
//	spec: {replicas: 3, paused: true, template: ...}
//
//	manager   operation   owns
//	app       Apply       f:replicas f:paused (and the template)
//	scaler    Update      f:replicas
//
// and that app now applies, with force, a configuration with replicas 5 and without paused:
//
//  1. The configuration's field set is f:replicas: that is what app owns from now on (configured.go).
//  2. The configuration is merged into the object: replicas becomes 5 (merge.go, mergetree.go).
//  3. A field that app applied the last time and does not apply now (f:paused) is removed from the object,
//     because no other manager owns it (prune.go).
//  4. The object before and after differ in f:replicas, which was modified, and in f:paused, which was removed.
//     Other managers lose these: scaler has nothing left. Without force, f:replicas is a conflict with scaler,
//     which is answered 409, and nothing is changed (apply.go, conflict.go).
//
// The result is
//
//	spec: {replicas: 5, template: ...}
//
//	manager   operation   owns
//	app       Apply       f:replicas (and the template)
//
// and the entry of app has the time of the request. An apply that changes nothing in the object leaves the
// time, so that nothing is written.
//
// The schema of a kind defines what one field is. A scalar, an atomic map or an atomic list is one field. In any
// other map, each member is a field. In any other list, each item is a field: k:{"name":"web"} is the item with
// this key, v:"a" the item of a set. Items of two lists are matched by key, and get the order that arrange
// (merge.go) describes.
//
// # Two algorithms
//
// The general algorithm (general.go) is that of sigs.k8s.io/structured-merge-diff, which kube-apiserver uses. It
// makes trees of both objects and compares or merges them as a whole, and takes milliseconds for an apply.
//
// The incremental algorithm (incremental.go, apply.go) has the same result. It works on the Go values or trees of
// objects of one version, and follows the schema of the kind, which is compiled once (shape.go, and plan.go for Go
// types). An apply looks only at fields that the configuration mentions now or mentioned the last time. Some cases
// are left to the general algorithm: managers of other versions, two items of a list with the same key, JSON in
// fields of types such as RawExtension, and all requests that have to be refused. Then it returns false and has
// changed nothing.
//
// There are separate functions for Go values (compare.go, merge.go) and for trees (comparetree.go, mergetree.go).
// Some parts are the same for both: the path and the sets (walk), the pairs of items (pairs, arrange), and maps
// and lists without items (around, replaces). BenchmarkWalk compares two Pods that differ in the image of a
// container. It measured what a single walk for both would cost (Go 1.26, two cores of an AMD EPYC):
//
//	Go values by their plan                     25-50 us     6.5 KB   100 allocations
//	trees of the same Pods                      25-55 us     6.0 KB    62 allocations
//	Go values, converted to trees first       240-530 us    69.3 KB   780 allocations
//	Go values in an interface for both forms       42 us    15.7 KB   386 allocations
//
// The last line is the lowest possible cost of an interface: each value is boxed, but still walked by its plan. A
// type parameter would box nothing, but the two walks have little in common. The walk of a struct follows the
// fields of its plan and looks up no names; that of a tree sorts names. A Go value always fits the schema; a tree
// has to be checked.
//
// The tests compare the two algorithms on random histories of writes (updatetwin_test.go, applytwin_test.go), and
// both with responses of kube-apiserver (recorded_test.go).
package managedfields
