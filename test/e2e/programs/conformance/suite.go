//go:build tools

// Package conformance names the suite, so that go mod tidy keeps what it needs.
package conformance

import _ "k8s.io/kubernetes/test/e2e"
