// Package e2e runs the clients and components that Kubernetes is used with,
// as programs, against Keelson as a program. README.md says how.
package e2e
