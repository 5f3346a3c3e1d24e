package openapi

import (
	_ "embed"
	"sync"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi/archive"
)

// builtin is written by `go generate ./internal/object/mergeschema`.
//
//go:embed builtin.bin
var builtin []byte

// Builtin returns the archive with the documents of the built-in groups.
var Builtin = sync.OnceValues(func() (*archive.Archive, error) {
	return archive.Open(builtin)
})
