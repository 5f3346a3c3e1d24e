package registry_test

import "github.com/keelson-dev/keelson/internal/api/write/writetest"

// writer writes objects in tests.
var writer = writetest.New(nil)
