// Package core declares the kinds of the core API group ("/api/v1").
//
// # How to add a kind
//
// A kind is a function that returns a *registry.Kind, in a file of its own, and a line in
// Kinds. Such a file has, from top to bottom:
//
//   - Names: the names and the scope in discovery;
//   - Versions: New makes the Go type, Default sets the version's defaults.
//     A default function must be idempotent, because it also runs on objects that have
//     the defaults already. It also sets deprecated fields to the values of the fields that
//     replaced them;
//   - Storage: the stored version, and the prefix of the keys below /registry/;
//   - Requests and Metadata: verbs and flags (may a PUT create an object? may it leave out
//     the resourceVersion? does a DELETE return the object?). Discovery and recorded
//     responses of kube-apiserver show the right values;
//   - Selection: selectable fields, by their numbers in the protobuf tags of
//     k8s.io/api, because selectors are matched on stored bytes;
//   - Strategy: the fields that the server sets on create (PrepareCreate) and resets on
//     update (PrepareUpdate), and validation; Status if there is a status subresource;
//   - Deletion: only if deletion has special rules (grace period, finalizers in the spec);
//   - Table: columns with the descriptions of the fields (SwaggerDoc of the
//     type) and a function that makes the cells of a row.
//
// The tests read whole objects from testdata: the body of a request and the object in the
// response. For a new kind, add one such pair for each of its defaults, and a row of its
// table. What an admission plug-in does (priority, default tolerations, the protection
// finalizer of a claim) and what an allocator does (cluster IPs, node ports) is not declared
// here.
package core
