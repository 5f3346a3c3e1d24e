package declare

import "k8s.io/apimachinery/pkg/util/diff"

// Diff returns the differences between two values of the internal version as a unified diff with three lines of context.
// It is part of messages to clients, and kube-apiserver writes it with the same function of its internal values.
func Diff(a, b any) string { return diff.Diff(Internal(a), Internal(b)) }
