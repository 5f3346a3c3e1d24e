// Package core declares the kinds of the core API group ("/api/v1").
//
// # How to add a kind
//
// A kind is one function in a file of its own that returns a *registry.Kind, and
// one line in Kinds. From top to bottom of such a file:
//
//   - names, scope, verbs and flags, as discovery and the recorded contract show
//     them (does PUT create? may a PUT leave out the resourceVersion? does DELETE
//     answer the object?);
//   - the versions: New makes the Go type, Default sets the version's defaults.
//     A default function must be idempotent, for stored objects are not defaulted
//     again, and must bring deprecated fields in line with their successors;
//   - selectable fields, by their numbers in the protobuf tags of k8s.io/api, for
//     selectors are matched on stored bytes;
//   - hooks: what the server sets on create (PrepareCreate) and takes back on
//     update (PrepareUpdate); Status where there is a status subresource;
//   - the table: columns with the descriptions of the fields (SwaggerDoc of the
//     type) and a function that makes a row.
//
// The tests take whole objects from testdata: a body as it was sent and the
// object as it was answered. A new kind brings one such pair for each default it
// has, and a row of its table. Whatever belongs to an admission plugin (priority,
// default tolerations, a claim's protection finalizer) or to an allocator (cluster
// IPs, node ports) is not declared here.
package core
