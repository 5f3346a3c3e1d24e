// Package core declares the kinds of the core API group ("/api/v1").
//
// # How to add a kind
//
// A kind is one function in a file of its own that returns a *registry.Kind, and
// one line in Kinds. From top to bottom of such a file:
//
//   - Names: names and scope, as discovery shows them;
//   - Versions: New makes the Go type, Default sets the version's defaults.
//     A default function must be idempotent, because it also runs on objects that
//     have the defaults, and must bring deprecated fields in line with their successors;
//   - Storage: the version and the key below /registry/;
//   - Requests and Metadata: verbs and flags, as discovery and the recorded contract
//     show them (does PUT create? may a PUT leave out the resourceVersion? does
//     DELETE answer the object?);
//   - Selection: selectable fields, by their numbers in the protobuf tags of
//     k8s.io/api, because selectors are matched on stored bytes;
//   - Strategy: what the server sets on create (PrepareCreate) and takes back on
//     update (PrepareUpdate), and what it refuses; Status where there is a status
//     subresource;
//   - Deletion: only where a deletion is special (grace, finalizers in the spec);
//   - Table: columns with the descriptions of the fields (SwaggerDoc of the
//     type) and a function that makes the cells of a row.
//
// The tests take whole objects from testdata: a body as it was sent and the
// object as it was answered. A new kind brings one such pair for each default it
// has, and a row of its table. Whatever belongs to an admission plugin (priority,
// default tolerations, a claim's protection finalizer) or to an allocator (cluster
// IPs, node ports) is not declared here.
package core
