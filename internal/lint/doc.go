// Package lint holds the repository's rules as tests: which package may import
// which, which modules may be used, and how packages are written.
package lint
