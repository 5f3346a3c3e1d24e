// Package effort says how much work the tests do.
package effort

import (
	"os"
	"testing"
)

// Full reports whether tests do everything: all rounds of random tests, all attacks, all versions of a kind. That
// is so if KEELSON_SLOW=1 is set (as in .ci/run) and -short is not given (it is with the race detector). Otherwise
// a test that takes seconds of processor time does a part of its work, so that `go test ./...` takes minutes.
func Full() bool { return os.Getenv("KEELSON_SLOW") != "" && !testing.Short() }

// Rounds returns all if the tests do everything, otherwise few.
func Rounds(all, few int) int {
	if Full() {
		return all
	}
	return few
}
