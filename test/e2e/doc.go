// Package e2e runs the clients and components of Kubernetes as programs with Keelson as a program. README.md explains
// how.
package e2e
