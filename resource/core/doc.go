// Package core declares the kinds of the core API group.
package core
