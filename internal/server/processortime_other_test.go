//go:build !unix

package server

import (
	"testing"
	"time"
)

// processorTime skips the benchmark, because this system does not report the processor time of a process.
func processorTime(b *testing.B) time.Duration {
	b.Skip("the processor time of this process is only known on Unix")
	return 0
}
