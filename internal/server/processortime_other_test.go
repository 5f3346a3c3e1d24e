//go:build !unix

package server

import (
	"testing"
	"time"
)

// processorTime skips the benchmark: what it measures is not known on this system.
func processorTime(b *testing.B) time.Duration {
	b.Skip("the processor time of this process is only known on Unix")
	return 0
}
